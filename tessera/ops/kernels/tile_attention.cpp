#include "tessera/ops/kernels/tile_attention.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "tessera/core/error.h"
#include "tessera/ops/kernels/tile_rows.h"

#if defined(TESSERA_TILE_CODE)
#include <immintrin.h>
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")
#endif

namespace tessera::ops::kernels {

#if defined(TESSERA_TILE_CODE)
namespace {

constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;
constexpr int64_t kHalf = 16;  // queries in a register

// 2^z where `mask` and z >= -126 (or NaN), else 0; z <= 128. The polynomial is the best one for 2^r on [-1/2,
// 1/2] that is 1 at 0: it errs by 9e-8, or by 3e-6 where the result becomes a bf16.
template <class T>
__m512 power_of_two(__mmask16 mask, __m512 z) {
  const __mmask16 counts = _mm512_mask_cmp_ps_mask(mask, z, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
  const __m512 n = _mm512_roundscale_ps(z, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 r = _mm512_sub_ps(z, n);
  __m512 p;
  const auto step = [&](float coefficient) { p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(coefficient)); };
  if constexpr (std::is_same_v<T, float>) {
    p = _mm512_set1_ps(0.00132647273f);
    step(0.00967151299f);
    step(0.0555073358f);
    step(0.240222424f);
    step(0.693147004f);
  } else {
    p = _mm512_set1_ps(0.00958285388f);
    step(0.0559064262f);
    step(0.240240991f);
    step(0.693124175f);
  }
  step(1.0f);
  return _mm512_maskz_scalef_ps(counts, p, n);
}

// log2 of a positive normal number: the series of the inverse hyperbolic tangent.
__m512 log2(__m512 x) {
  const __m512 exponent = _mm512_getexp_ps(x), m = _mm512_getmant_ps(x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_nan);
  const __m512 one = _mm512_set1_ps(1.0f);
  // m in [1, 2) over the root of two.
  const __m512 root = _mm512_set1_ps(1.41421356f);
  const __m512 s = _mm512_div_ps(_mm512_sub_ps(m, root), _mm512_add_ps(m, root)), t = _mm512_mul_ps(s, s);
  __m512 p = _mm512_set1_ps(1.0f / 9);
  for (const float c : {1.0f / 7, 1.0f / 5, 1.0f / 3}) p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(c));
  p = _mm512_mul_ps(_mm512_fmadd_ps(p, t, one), s);
  return _mm512_add_ps(_mm512_add_ps(exponent, _mm512_set1_ps(0.5f)),
                       _mm512_mul_ps(p, _mm512_set1_ps(2 * kLog2E)));
}

// The queries of a half that see key `key` of a panel on the diagonal.
__mmask16 sees(int64_t key, int64_t half) {
  return static_cast<__mmask16>((~uint32_t{0} << key) >> (kHalf * half));
}

// The keys whose numbers share a row of a tile on the right.
template <class T>
constexpr int64_t first_key(int64_t row) {
  return std::is_same_v<T, float> ? row : 2 * row;
}
template <class T>
constexpr int64_t kKeyStep = std::is_same_v<T, float> ? 16 : 1;

// The numbers of a key and 32 queries as they are stored.
template <class T>
struct Stored;
template <>
struct Stored<Bf16> {
  Row row;
  Stored(__m512 low, __m512 high) : row(reinterpret_cast<Row>(_mm512_cvtne2ps_pbh(high, low))) {}
};
template <>
struct Stored<float> {
  Planes half[2];
  Stored(__m512 low, __m512 high) : half{planes_of(low), planes_of(high)} {}
};

// As row `key` of a left block: the depth is the queries.
void store_left(const Stored<Bf16>& x, int64_t key, char* to) { _mm512_store_si512(to + key * 64, x.row); }
void store_left(const Stored<float>& x, int64_t key, char* to) {
  store_planes(x.half[0], x.half[1], to + key * 64);
}
template <class X>
void store_left_block(const X& x, int64_t key, char* block) {
  store_left(x, key % kTileLines, block + key / kTileLines * kTileBytes);
}

// As row `row` of the two tiles of a right block: the depth is the keys.
void store_right(const Stored<Bf16>& a, const Stored<Bf16>& b, int64_t row, char* block) {
  const Row low = _mm512_unpacklo_epi16(a.row, b.row), high = _mm512_unpackhi_epi16(a.row, b.row);
  const Row first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
            second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  _mm512_store_si512(block + row * 64, _mm512_permutex2var_epi64(low, first, high));
  _mm512_store_si512(block + kTileBytes + row * 64, _mm512_permutex2var_epi64(low, second, high));
}
void store_right(const Stored<float>& a, const Stored<float>& b, int64_t row, char* block) {
  store_planes(a.half[0], b.half[0], block + row * 64);
  store_planes(a.half[1], b.half[1], block + kTileBytes + row * 64);
}

struct Halves {
  __m512 low, high;
};

template <class T, bool kDiagonal>
void numerators_of_panel(const float* scores, __m512 scale, const Halves& shift, Halves& sum, char* block) {
  const auto of_key = [&](int64_t key) {
    const float* row = scores + key * kPanelLines;
    const __mmask16 low_mask = kDiagonal ? sees(key, 0) : __mmask16(0xffff),
                    high_mask = kDiagonal ? sees(key, 1) : __mmask16(0xffff);
    const __m512 low = power_of_two<T>(low_mask, _mm512_fmsub_ps(_mm512_loadu_ps(row), scale, shift.low)),
                 high = power_of_two<T>(high_mask,
                                        _mm512_fmsub_ps(_mm512_loadu_ps(row + kHalf), scale, shift.high));
    sum.low = _mm512_add_ps(sum.low, low);
    sum.high = _mm512_add_ps(sum.high, high);
    return Stored<T>(low, high);
  };
  for (int64_t row = 0; row < kTileLines; ++row) {
    const int64_t key = first_key<T>(row);
    const Stored<T> a = of_key(key), b = of_key(key + kKeyStep<T>);
    store_right(a, b, row, block);
  }
}

// max_ps gives its second operand where one is not a number.
template <bool kDiagonal>
void largest_of_panel(const float* scores, Halves& top) {
  for (int64_t key = 0; key < kPanelLines; ++key) {
    const float* row = scores + key * kPanelLines;
    const __m512 low = _mm512_loadu_ps(row), high = _mm512_loadu_ps(row + kHalf);
    if constexpr (kDiagonal) {
      top.low = _mm512_mask_max_ps(top.low, sees(key, 0), low, top.low);
      top.high = _mm512_mask_max_ps(top.high, sees(key, 1), high, top.high);
    } else {
      top.low = _mm512_max_ps(low, top.low);
      top.high = _mm512_max_ps(high, top.high);
    }
  }
}

template <class T, bool kDiagonal>
void backward_of_panel(const float* scores, const float* grad_numerators, float scale, const float* log_sum,
                       const float* delta, char* p_left, char* g_left, char* g_right) {
  const __m512 factor = _mm512_set1_ps(scale), to_power = _mm512_set1_ps(scale * kLog2E),
               log2_e = _mm512_set1_ps(kLog2E);
  const __m512 shift[2] = {_mm512_mul_ps(_mm512_loadu_ps(log_sum), log2_e),
                           _mm512_mul_ps(_mm512_loadu_ps(log_sum + kHalf), log2_e)};
  const __m512 mean[2] = {_mm512_mul_ps(_mm512_loadu_ps(delta), factor),
                          _mm512_mul_ps(_mm512_loadu_ps(delta + kHalf), factor)};
  const auto of_key = [&](int64_t key) {
    __m512 p[2], g[2];
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t at = key * kPanelLines + half * kHalf;
      const __mmask16 mask = kDiagonal ? sees(key, half) : __mmask16(0xffff);
      p[half] = power_of_two<T>(mask, _mm512_fmsub_ps(_mm512_loadu_ps(scores + at), to_power, shift[half]));
      const __m512 above = _mm512_fmsub_ps(_mm512_loadu_ps(grad_numerators + at), factor, mean[half]);
      g[half] = kDiagonal ? _mm512_maskz_mul_ps(mask, p[half], above) : _mm512_mul_ps(p[half], above);
    }
    store_left_block(Stored<T>(p[0], p[1]), key, p_left);
    const Stored<T> gradient(g[0], g[1]);
    store_left_block(gradient, key, g_left);
    return gradient;
  };
  for (int64_t row = 0; row < kTileLines; ++row) {
    const int64_t key = first_key<T>(row);
    const Stored<T> a = of_key(key), b = of_key(key + kKeyStep<T>);
    store_right(a, b, row, g_right);
  }
}

}  // namespace

template <class T>
void tile_softmax(const float* scores, int64_t key_panels, bool has_diagonal, float scale, bool is_first,
                  SoftmaxState& state, float* rescale, void* numerators) {
  constexpr int64_t kPanel = kPanelLines * kPanelLines;
  const int64_t full = key_panels - (has_diagonal ? 1 : 0);
  const __m512 none = _mm512_set1_ps(-INFINITY), power = _mm512_set1_ps(scale * kLog2E);
  Halves top{none, none};
  for (int64_t i = 0; i < full; ++i) largest_of_panel<false>(scores + i * kPanel, top);
  if (has_diagonal) largest_of_panel<true>(scores + full * kPanel, top);
  const auto raise = [&](__m512& largest, float* maximum, float* factors) {
    const __m512 before = is_first ? none : _mm512_loadu_ps(maximum);
    const __m512 after = _mm512_max_ps(_mm512_mul_ps(largest, power), before);
    // Nothing but -inf so far: subtract 0, so that a power gives 0 for -inf.
    const __m512 shift = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(after, none, _CMP_NEQ_UQ), after);
    const __mmask16 had = _mm512_cmp_ps_mask(before, none, _CMP_NEQ_UQ);
    _mm512_storeu_ps(factors, power_of_two<float>(had, _mm512_sub_ps(before, shift)));
    _mm512_storeu_ps(maximum, after);
    return shift;
  };
  const Halves shift{raise(top.low, state.maximum, rescale),
                     raise(top.high, state.maximum + kHalf, rescale + kHalf)};
  Halves sum{};
  if (!is_first) {
    sum.low = _mm512_mul_ps(_mm512_loadu_ps(state.sum), _mm512_loadu_ps(rescale));
    sum.high = _mm512_mul_ps(_mm512_loadu_ps(state.sum + kHalf), _mm512_loadu_ps(rescale + kHalf));
  }
  char* block = static_cast<char*>(numerators);
  for (int64_t i = 0; i < full; ++i, block += kBlockBytes<T>) {
    numerators_of_panel<T, false>(scores + i * kPanel, power, shift, sum, block);
  }
  if (has_diagonal) numerators_of_panel<T, true>(scores + full * kPanel, power, shift, sum, block);
  _mm512_storeu_ps(state.sum, sum.low);
  _mm512_storeu_ps(state.sum + kHalf, sum.high);
}

void tile_softmax_end(const SoftmaxState& state, float* factors, float* log_sum) {
  for (int64_t i = 0; i < kPanelLines; i += kHalf) {
    const __m512 sum = _mm512_loadu_ps(state.sum + i);
    _mm512_storeu_ps(factors + i, _mm512_div_ps(_mm512_set1_ps(1.0f), sum));
    const __m512 power = _mm512_add_ps(_mm512_loadu_ps(state.maximum + i), log2(sum));
    _mm512_storeu_ps(log_sum + i, _mm512_mul_ps(power, _mm512_set1_ps(kLn2)));
  }
}

template <class T>
void tile_softmax_backward(const float* scores, const float* grad_numerators, bool is_diagonal, float scale,
                           const float* log_sum, const float* delta, void* p_left, void* g_left,
                           void* g_right) {
  const auto run = is_diagonal ? backward_of_panel<T, true> : backward_of_panel<T, false>;
  run(scores, grad_numerators, scale, log_sum, delta, static_cast<char*>(p_left), static_cast<char*>(g_left),
      static_cast<char*>(g_right));
}

void scale_columns(float* x, const float* factors, int64_t rows) {
  const __m512 low = _mm512_loadu_ps(factors), high = _mm512_loadu_ps(factors + kHalf);
  for (int64_t row = 0; row < rows; ++row, x += kPanelLines) {
    _mm512_storeu_ps(x, _mm512_mul_ps(_mm512_loadu_ps(x), low));
    _mm512_storeu_ps(x + kHalf, _mm512_mul_ps(_mm512_loadu_ps(x + kHalf), high));
  }
}

template <class T>
void turn_columns(const float* x, const float* factors, int64_t rows, int64_t columns, T* to,
                  int64_t to_stride) {
  for (int64_t column = 0; column < columns; column += kHalf) {
    const __m512 factor = _mm512_loadu_ps(factors + column);
    const int64_t lines = std::min(kHalf, columns - column);
    for (int64_t first = 0; first < rows; first += kHalf) {
      const __mmask16 mask = first_words(rows - first);
      Row square[16];
      for (int64_t i = 0; i < kHalf; ++i) {
        const __m512 row =
            first + i < rows ? _mm512_loadu_ps(x + (first + i) * kPanelLines + column) : _mm512_setzero_ps();
        square[i] = _mm512_castps_si512(_mm512_mul_ps(row, factor));
      }
      transpose(square);
      for (int64_t i = 0; i < lines; ++i) {
        store_floats(to + (column + i) * to_stride + first, mask, _mm512_castsi512_ps(square[i]));
      }
    }
  }
}

template <class T>
void tile_row_dots(const T* a, int64_t a_stride, const T* b, int64_t b_stride, int64_t rows, int64_t width,
                   float* out) {
  for (int64_t first = 0; first < rows; first += kHalf) {
    Row parts[16];
    for (int64_t i = 0; i < kHalf; ++i) {
      __m512 sum = _mm512_setzero_ps();
      const int64_t row = first + i;
      for (int64_t at = 0; at < width && row < rows; at += kHalf) {
        const __mmask16 mask = first_words(width - at);
        sum = _mm512_fmadd_ps(load_floats(a + row * a_stride + at, mask),
                              load_floats(b + row * b_stride + at, mask), sum);
      }
      parts[i] = _mm512_castps_si512(sum);
    }
    transpose(parts);
    __m512 sums = _mm512_castsi512_ps(parts[0]);
    for (int64_t i = 1; i < kHalf; ++i) sums = _mm512_add_ps(sums, _mm512_castsi512_ps(parts[i]));
    _mm512_storeu_ps(out + first, sums);
  }
}

#else

template <class T>
void tile_softmax(const float*, int64_t, bool, float, bool, SoftmaxState&, float*, void*) {
  TESSERA_ASSERT(false, "no tile units");
}
void tile_softmax_end(const SoftmaxState&, float*, float*) { TESSERA_ASSERT(false, "no tile units"); }
template <class T>
void tile_softmax_backward(const float*, const float*, bool, float, const float*, const float*, void*, void*,
                           void*) {
  TESSERA_ASSERT(false, "no tile units");
}
void scale_columns(float*, const float*, int64_t) { TESSERA_ASSERT(false, "no tile units"); }
template <class T>
void turn_columns(const float*, const float*, int64_t, int64_t, T*, int64_t) {
  TESSERA_ASSERT(false, "no tile units");
}
template <class T>
void tile_row_dots(const T*, int64_t, const T*, int64_t, int64_t, int64_t, float*) {
  TESSERA_ASSERT(false, "no tile units");
}

#endif

#define TESSERA_INSTANTIATE(T)                                                                           \
  template void tile_softmax<T>(const float*, int64_t, bool, float, bool, SoftmaxState&, float*, void*); \
  template void tile_softmax_backward<T>(const float*, const float*, bool, float, const float*,          \
                                         const float*, void*, void*, void*);                             \
  template void turn_columns<T>(const float*, const float*, int64_t, int64_t, T*, int64_t);              \
  template void tile_row_dots<T>(const T*, int64_t, const T*, int64_t, int64_t, int64_t, float*);
TESSERA_INSTANTIATE(float)
TESSERA_INSTANTIATE(Bf16)
#undef TESSERA_INSTANTIATE

}  // namespace tessera::ops::kernels
