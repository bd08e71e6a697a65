#include "tessera/ops/kernels/coded_page.h"

#include <algorithm>

#include <float.h>

#include "tessera/ops/kernels/code_rounding.h"

namespace tessera::ops::kernels {
namespace {

template <class T>
TESSERA_INLINE int encode(const T* x, int64_t n, int8_t* codes, int64_t stride, float* scale) {
  constexpr int64_t kPiece = 64;
  float piece[kPiece];
  int8_t rounded[kPiece];
  float largest = 0;
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t count = std::min(kPiece, n - begin);
    for (int64_t i = 0; i < count; ++i) piece[i] = static_cast<float>(load(x[begin + i]));
    const float own = largest_magnitude(piece, count);
    largest = own <= largest ? largest : own;  // NaN stays
    if (largest != largest) break;
  }
  *scale = largest / 127.0f;
  const float inverse = *scale > FLT_MIN ? 1.0f / *scale : 0.0f;
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t count = std::min(kPiece, n - begin);
    for (int64_t i = 0; i < count; ++i) piece[i] = static_cast<float>(load(x[begin + i]));
    round_to_codes(piece, count, inverse, rounded);
    for (int64_t i = 0; i < count; ++i) codes[(begin + i) * stride] = rounded[i];
  }
  return 0;
}

template <class T>
TESSERA_INLINE int columns(const int8_t* codes, const float* scales, int64_t n, T* to) {
  for (int64_t i = 0; i < n; ++i) {
#pragma omp simd
    for (int64_t j = 0; j < kPageTokens; ++j)
      store(to[i * kPageTokens + j], static_cast<ComputeType<T>>(codes[i * kPageTokens + j]) * scales[j]);
  }
  return 0;
}

template <class T>
TESSERA_INLINE int rows(const int8_t* codes, const float* scales, int64_t tokens, int64_t n, T* to) {
  for (int64_t j = 0; j < tokens; ++j) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i)
      store(to[j * n + i], static_cast<ComputeType<T>>(codes[j * n + i]) * scales[j]);
  }
  return 0;
}

}  // namespace

#define TESSERA_DEFINE(T)                                                                           \
  void encode_token(const T* x, int64_t n, int8_t* codes, int64_t stride, float* scale) {           \
    TESSERA_BEST_ISA(encode(x, n, codes, stride, scale));                                           \
  }                                                                                                 \
  void decode_columns(const int8_t* codes, const float* scales, int64_t n, T* to) {                 \
    TESSERA_BEST_ISA(columns(codes, scales, n, to));                                                \
  }                                                                                                 \
  void decode_rows_of(const int8_t* codes, const float* scales, int64_t tokens, int64_t n, T* to) { \
    TESSERA_BEST_ISA(rows(codes, scales, tokens, n, to));                                           \
  }
TESSERA_DEFINE(float)
TESSERA_DEFINE(double)
TESSERA_DEFINE(Bf16)
#undef TESSERA_DEFINE

}  // namespace tessera::ops::kernels
