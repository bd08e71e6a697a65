// Products of packed operands (packed.h), for each kind of vector unit. Included by units_*.cpp after
// vec_*.h; TESSERA_VEC names that header's namespace.
#pragma once

namespace tessera::ops::kernels::TESSERA_VEC {

// Returns a word of one line in all lanes, for all lines that it meets.
TESSERA_INLINE Vec repeated_word(const char* word) {
  float x;
  memcpy(&x, word, sizeof x);
  return all(x);
}

// Computes sum + a b, word by word, for a word `a` that meets all lines of b.
template <class Form>
struct WordProduct;
template <>
struct WordProduct<float> {
  TESSERA_INLINE Vec added(Vec sum, Vec a, Vec b) { return multiply_add(a, b, sum); }
  // Does it for the first `kRowsFromMemory` rows of a group.
  TESSERA_INLINE Vec added_from(Vec sum, const char* a, Vec b) {
    return multiply_add_from(reinterpret_cast<const float*>(a), b, sum);
  }
  static constexpr int64_t kRowsFromMemory = TESSERA_VEC::kRowsFromMemory;
};
template <>
struct WordProduct<Widened> : WordProduct<float> {};
template <>
struct WordProduct<WidenedHalf> : WordProduct<float> {};

template <class Out>
TESSERA_INLINE void write_sums(Vec sum, float beta, Out* to, Mask mask) {
  store(to, mask, beta == 0 ? sum : multiply_add(all(beta), load(to, mask), sum));
}

// Computes C = sums + beta C for [rows, columns].
template <class Out>
void add_sums_to(const float* sums, int64_t sum_stride, float beta, Out* c, int64_t ldc, int64_t rows,
                 int64_t columns) {
  for (int64_t row = 0; row < rows; ++row, sums += sum_stride, c += ldc) {
    for (int64_t i = 0; i < columns; i += kTileLines) {
      const Mask mask = first_of(columns - i);
      write_sums(load(sums + i, mask), beta, c + i, mask);
    }
  }
}

// Multiplies `Rows` lines of a left panel by `Vecs` tiles of a right one over `planes` planes: C = product +
// beta C, for up to `rows` x `columns` of C. The next planes are fetched by name: the processor does not
// foresee a group's lines, nor every second kilobyte of a panel. That gains 3 to 6 % on an AMD EPYC of the
// third generation and on an Intel Xeon of family 6, model 207.
template <class Form, int64_t Rows, int64_t Vecs, class Out>
[[gnu::noinline]] void multiply_rows(const char* left, const char* right, int64_t planes, float beta, Out* c,
                                     int64_t ldc, int64_t rows, int64_t columns) {
  Vec sums[Rows][Vecs];
#pragma GCC unroll 16
  for (int64_t row = 0; row < Rows; ++row) {
#pragma GCC unroll 2
    for (int64_t i = 0; i < Vecs; ++i) sums[row][i] = zero();
  }
  // C is written last, but fetching it takes longest, so it begins here.
  for (int64_t row = 0; row < std::min(rows, Rows); ++row) {
    __builtin_prefetch(c + row * ldc, 1);
    __builtin_prefetch(c + row * ldc + columns - 1, 1);
  }
  for (int64_t plane = 0; plane < planes; ++plane, left += kPlaneBytes, right += kPlaneBytes) {
#pragma GCC unroll 16
    for (int64_t row = 0; row < Rows; ++row) __builtin_prefetch(left + 2 * kPlaneBytes + row * 64);
#pragma GCC unroll 4
    for (int64_t word = 0; word < 16; ++word) {
      Vec line[Vecs];
#pragma GCC unroll 2
      for (int64_t i = 0; i < Vecs; ++i) {
        const char* words = right + i * kTileBytes + word * 64;
        __builtin_prefetch(words + kPlaneBytes);
        line[i] = load(reinterpret_cast<const float*>(words));
      }
#pragma GCC unroll 16
      for (int64_t row = 0; row < Rows; ++row) {
        const char* const repeated = left + row * 64 + word * 4;
        if constexpr (WordProduct<Form>::kRowsFromMemory > 0) {
          if (row < WordProduct<Form>::kRowsFromMemory) {
#pragma GCC unroll 2
            for (int64_t i = 0; i < Vecs; ++i) {
              sums[row][i] = WordProduct<Form>::added_from(sums[row][i], repeated, line[i]);
            }
            continue;
          }
        }
        const Vec word_of_row = repeated_word(repeated);
#pragma GCC unroll 2
        for (int64_t i = 0; i < Vecs; ++i) {
          sums[row][i] = WordProduct<Form>::added(sums[row][i], word_of_row, line[i]);
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int64_t row = 0; row < Rows; ++row) {
    if (row >= rows) return;
#pragma GCC unroll 2
    for (int64_t i = 0; i < Vecs; ++i) {
      write_sums(sums[row][i], beta, c + row * ldc + i * kTileLines, first_of(columns - i * kTileLines));
    }
  }
}

// Calls run(lines) for each group of a panel's lines, in their order; `lines` is a constant.
template <class Run>
TESSERA_INLINE void for_row_groups(const Run& run) {
  [&]<size_t... Index>(std::index_sequence<Index...>) {
    (run(std::integral_constant<int64_t, kRowGroups[Index]>()), ...);
  }
  (std::make_index_sequence<std::size(kRowGroups)>());
}

template <class Form, int64_t Vecs, class Out>
void multiply_columns(const char* left, const char* right, int64_t planes, float beta, Out* c, int64_t ldc,
                      int64_t rows, int64_t columns) {
  int64_t first = 0;
  for_row_groups([&](auto group) {
    if (first < rows) {
      multiply_rows<Form, group, Vecs>(left + first * 64, right, planes, beta, c + first * ldc, ldc,
                                       std::min<int64_t>(rows - first, group), columns);
    }
    first += group;
  });
}

// Computes C's block of `rows` x `columns`, up to a panel each, as the panels' product + beta C.
template <class Form, class Out>
void multiply_block(const char* left, const char* right, int64_t blocks, float beta, Out* c, int64_t ldc,
                    int64_t rows, int64_t columns) {
  const int64_t planes = blocks * kPlanes<Form>;
  if (kVecsOfProduct == 2 && columns > kTileLines) {
    multiply_columns<Form, kVecsOfProduct>(left, right, planes, beta, c, ldc, rows, columns);
    return;
  }
  for (int64_t column = 0; column < columns; column += kTileLines) {
    multiply_columns<Form, 1>(left, right + column / kTileLines * kTileBytes, planes, beta, c + column, ldc,
                              rows, std::min(columns - column, kTileLines));
  }
}

template <class Form, class Out>
void multiply(const Packed& left, const Packed& right, int64_t group, float beta, Out* c, int64_t ldc) {
  multiply_blocks<Form>(left, right, group, beta, c, ldc, multiply_block<Form, Out>);
}

template <class Form>
void multiply_panel(const char* left, const char* right, int64_t blocks, bool adds, float* c, int64_t ldc) {
  multiply_block<Form>(left, right, blocks, adds ? 1.0f : 0.0f, c, ldc, kPanelLines, kPanelLines);
}

}  // namespace tessera::ops::kernels::TESSERA_VEC
