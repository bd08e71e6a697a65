// Products whose left operand is read as it lies in memory, for each kind of vector unit. Included by
// units_*.cpp after vec_*.h; TESSERA_VEC names that header's namespace.
//
// [Note: plain products] A linear layer of few rows reads each weight once, and packing the weights would
// cost as much as the product. Two ways follow: one for few rows of x, whose vectors are 16 outputs, and one
// for more, whose vectors are rows of x. In both, an element is the sum of its products in the order of
// the depth, each multiplied and added in one step, in parts of kPartDepth that are added up. So a row has
// the same bits in both ways, and among any number of others.
#pragma once

namespace tessera::ops::kernels::TESSERA_VEC {

inline constexpr int64_t kPartDepth = 256;
inline constexpr int64_t kWords = 16;  // depths of a square that is turned, and of a plane of a panel

// The numbers of rows of x that are multiplied together. Fewer are filled up with zeros.
inline constexpr int64_t kFewRows[] = {1, 2, 4, 6, 8, 12, 16};
inline constexpr int64_t kMostFewRows = kVecsOfProduct == 2 ? 16 : 6;  // that the registers hold

inline int64_t few_rows_for(int64_t rows) {
  return *std::ranges::find_if(kFewRows, [rows](int64_t known) { return known >= rows; });
}

// Packs x, [rows, depth], as [depth, few_rows_for(rows)].
inline void pack_few(const float* x, int64_t stride, int64_t rows, int64_t depth, float* to) {
  const int64_t width = few_rows_for(rows);
  for (int64_t row = 0; row < width; ++row) {
    const float* from = x + row * stride;
    for (int64_t d = 0; d < depth; ++d) to[d * width + row] = row < rows ? from[d] : 0.0f;
  }
}

// A square of weights: 16 outputs, and as many depths as sixteen words of each hold. It is turned, so that
// its lines are the outputs at one depth; bfloat16 is turned in words of two depths.
template <class W>
struct Square {
  static constexpr int64_t kPerWord = 4 / static_cast<int64_t>(sizeof(W)), kDepths = kWords * kPerWord;
  alignas(64) float words[kWords][kTileLines];
};

template <class W>
TESSERA_INLINE void turn_words(const W* weights, int64_t stride, bool fetches, Square<W>& to) {
  Vec square[kTileLines];
#pragma GCC unroll 16
  for (int64_t out = 0; out < kTileLines; ++out) {
    square[out] = load(reinterpret_cast<const float*>(weights + out * stride));
    // The rows are too short, and too many at a time, for the processor to foresee those that come next.
    if (fetches) __builtin_prefetch(weights + (kTileLines + out) * stride, 0, 2);
  }
  transpose(square);
#pragma GCC unroll 16
  for (int64_t word = 0; word < kWords; ++word) store(to.words[word], square[word]);
}

// Turns the square that lies at `weights`, of which `outs` outputs and `depth` depths are there; the others
// are zeros.
template <class W>
TESSERA_INLINE void turn_square(const W* weights, int64_t stride, int64_t outs, int64_t depth,
                                Square<W>& to) {
  constexpr int64_t kDepths = Square<W>::kDepths;
  if (outs == kTileLines && depth >= kDepths) return turn_words(weights, stride, true, to);
  W padded[kTileLines][kDepths] = {};
  for (int64_t out = 0; out < outs; ++out)
    memcpy(padded[out], weights + out * stride, static_cast<size_t>(std::min(depth, kDepths)) * sizeof(W));
  turn_words(padded[0], kDepths, false, to);
}

// Returns the weights at depth word * kPerWord + i.
TESSERA_INLINE Vec line_of(const Square<float>& square, int64_t word, int64_t) {
  return load(square.words[word]);
}
TESSERA_INLINE Vec line_of(const Square<Bf16>& square, int64_t word, int64_t i) {
  const Vec both = load(square.words[word]);
  return i == 0 ? widened_low(both) : widened_high(both);
}

// Adds to sums[row] the products of one line of weights and a row of x, [Rows].
template <int64_t Rows>
TESSERA_INLINE void add_line(Vec line, const float* x, Vec (&sums)[Rows]) {
#pragma GCC unroll 16
  for (int64_t row = 0; row < Rows; ++row) sums[row] = multiply_add(all(x[row]), line, sums[row]);
}
// Begins, or goes on with, the totals of all parts of the depth.
template <int64_t Rows>
TESSERA_INLINE void add_part(bool is_first, const Vec (&sums)[Rows], Vec (&totals)[Rows]) {
#pragma GCC unroll 16
  for (int64_t row = 0; row < Rows; ++row) totals[row] = is_first ? sums[row] : add(totals[row], sums[row]);
}
template <int64_t Rows>
TESSERA_INLINE void clear(Vec (&sums)[Rows]) {
#pragma GCC unroll 16
  for (int64_t row = 0; row < Rows; ++row) sums[row] = zero();
}

// Writes the totals of 16 outputs, of which `outs` are there, for `rows` of `Rows` rows of x.
template <int64_t Rows>
TESSERA_INLINE void put_totals(const Vec (&totals)[Rows], int64_t outs, const float* bias, float* y,
                               int64_t y_stride, int64_t rows) {
  const Mask mask = first_of(outs);
  const Vec added = bias == nullptr ? zero() : load(bias, mask);
#pragma GCC unroll 16
  for (int64_t row = 0; row < Rows; ++row) {
    if (row < rows) store(y + row * y_stride, mask, bias == nullptr ? totals[row] : add(totals[row], added));
  }
}

// Multiplies 16 rows of weights, of which `outs` are there, by `Rows` rows of x, [depth, Rows], of which
// `rows` are there.
template <int64_t Rows, class W>
[[gnu::noinline]] void multiply_turned(const W* weights, int64_t stride, int64_t outs, const float* x,
                                       int64_t depth, const float* bias, float* y, int64_t y_stride,
                                       int64_t rows) {
  constexpr int64_t kPerWord = Square<W>::kPerWord, kDepths = Square<W>::kDepths;
  Vec totals[Rows];
  for (int64_t part = 0; part < depth; part += kPartDepth) {
    Vec sums[Rows];
    clear(sums);
    const int64_t end = std::min(part + kPartDepth, depth);
    for (int64_t first = part; first < end; first += kDepths) {
      Square<W> square;
      turn_square(weights + first, stride, outs, end - first, square);
      const int64_t depths = std::min(kDepths, end - first);
      const float* at = x + first * Rows;
      for (int64_t d = 0; d < depths; d += kPerWord, at += kPerWord * Rows) {
        add_line(line_of(square, d / kPerWord, 0), at, sums);
        if (kPerWord == 2 && d + 1 < depths) add_line(line_of(square, d / kPerWord, 1), at + Rows, sums);
      }
    }
    add_part(part == 0, sums, totals);
  }
  put_totals(totals, outs, bias, y, y_stride, rows);
}

// Calls f with few_rows_for(rows) as a constant.
template <class F, size_t... Index>
TESSERA_INLINE void with_width_of(int64_t rows, const F& f, std::index_sequence<Index...>) {
  const int64_t width = few_rows_for(rows);
  const auto run = [&](auto index) {
    constexpr int64_t kRows = kFewRows[index];
    if constexpr (kRows <= kMostFewRows) {
      if (width == kRows) f(std::integral_constant<int64_t, kRows>());
    }
  };
  (run(std::integral_constant<size_t, Index>()), ...);
}
template <class F>
TESSERA_INLINE void with_width_of(int64_t rows, const F& f) {
  with_width_of(rows, f, std::make_index_sequence<std::size(kFewRows)>());
}

template <class W>
void multiply_few(const W* weights, int64_t stride, int64_t outs, const float* x, int64_t rows, int64_t depth,
                  const float* bias, float* y, int64_t y_stride) {
  with_width_of(rows, [&](auto width) {
    for (int64_t out = 0; out < outs; out += kTileLines) {
      multiply_turned<width>(weights + out * stride, stride, std::min(kTileLines, outs - out), x, depth,
                             bias == nullptr ? nullptr : bias + out, y + out, y_stride, rows);
    }
  });
}

// Multiplies `Rows` rows as they lie in memory by `Vecs` tiles of a right panel, and writes what is there of
// [columns, rows] of C.
template <int64_t Rows, int64_t Vecs>
[[gnu::noinline]] void multiply_plain_rows(const float* left, int64_t left_stride, const char* right,
                                           int64_t depth, const float* bias, float* c, int64_t ldc,
                                           int64_t columns, Ahead ahead) {
  const int64_t fetched_bytes = ahead.bytes * kWords / depth;
  alignas(64) float turned[Rows][Vecs * kTileLines];
  for (int64_t part = 0; part < depth; part += kPartDepth, left += kPartDepth) {
    Vec sums[Rows][Vecs];
#pragma GCC unroll 16
    for (int64_t row = 0; row < Rows; ++row) {
#pragma GCC unroll 2
      for (int64_t i = 0; i < Vecs; ++i) sums[row][i] = zero();
    }
    const int64_t end = std::min(kPartDepth, depth - part);
    for (int64_t first = 0; first < end; first += kWords, right += kPlaneBytes) {
      const int64_t words = std::min(kWords, end - first);
#pragma GCC unroll 16
      for (int64_t row = 0; row < Rows; ++row)
        __builtin_prefetch(left + (Rows + row) * left_stride + first, 0, 2);
      for (int64_t at = 0; at < fetched_bytes; at += 64) __builtin_prefetch(ahead.data + at, 0, 2);
      ahead.data += fetched_bytes;
      for (int64_t word = 0; word < words; ++word) {
        Vec line[Vecs];
#pragma GCC unroll 2
        for (int64_t i = 0; i < Vecs; ++i)
          line[i] = load(reinterpret_cast<const float*>(right + i * kTileBytes + word * 64));
#pragma GCC unroll 16
        for (int64_t row = 0; row < Rows; ++row) {
          const Vec repeated = all(left[row * left_stride + first + word]);
#pragma GCC unroll 2
          for (int64_t i = 0; i < Vecs; ++i) sums[row][i] = multiply_add(repeated, line[i], sums[row][i]);
        }
      }
    }
#pragma GCC unroll 16
    for (int64_t row = 0; row < Rows; ++row) {
#pragma GCC unroll 2
      for (int64_t i = 0; i < Vecs; ++i) {
        float* const total = turned[row] + i * kTileLines;
        store(total, part == 0 ? sums[row][i] : add(load(total), sums[row][i]));
      }
    }
  }
  for (int64_t column = 0; column < columns; ++column) {
#pragma GCC unroll 16
    for (int64_t row = 0; row < Rows; ++row)
      c[column * ldc + row] = bias == nullptr ? turned[row][column] : turned[row][column] + bias[row];
  }
}

template <int64_t Rows>
void multiply_plain_group(const float* left, int64_t left_stride, const char* right, int64_t depth,
                          const float* bias, float* c, int64_t ldc, int64_t columns, Ahead ahead) {
  if (kVecsOfProduct == 2 && columns > kTileLines) {
    multiply_plain_rows<Rows, kVecsOfProduct>(left, left_stride, right, depth, bias, c, ldc, columns, ahead);
    return;
  }
  for (int64_t first = 0; first < columns; first += kTileLines) {
    multiply_plain_rows<Rows, 1>(left, left_stride, right + first / kTileLines * kTileBytes, depth, bias,
                                 c + first * ldc, ldc, std::min(columns - first, kTileLines),
                                 first == 0 ? ahead : Ahead());
  }
}

inline void multiply_plain(const float* left, int64_t left_stride, const char* right, int64_t depth,
                           const float* bias, float* c, int64_t ldc, int64_t rows, int64_t columns,
                           const Ahead& ahead) {
  int64_t row = 0;
  const auto run = [&](auto group) {
    multiply_plain_group<group>(left + row * left_stride, left_stride, right, depth,
                                bias == nullptr ? nullptr : bias + row, c + row, ldc, columns,
                                {ahead.data + ahead.bytes * row / rows, ahead.bytes * group / rows});
    row += group;
  };
  while (row + kPanelLines <= rows) for_row_groups(run);
  while (row + kRowGroups[0] <= rows) run(std::integral_constant<int64_t, kRowGroups[0]>());
  while (row < rows) run(std::integral_constant<int64_t, 1>());
}

}  // namespace tessera::ops::kernels::TESSERA_VEC
