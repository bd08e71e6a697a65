// Keys and values of one head in a page of a cache as signed bytes, with one scale for each token.
#pragma once

#include <cstdint>

#include "tessera/ops/kernels/kernels.h"

namespace tessera::ops::kernels {

// encode_token: writes the codes of a token's `n` numbers, `stride` bytes apart, and their scale. If a number
// is not finite, the scale is not finite either, and so is all that is made of it.
//
// decode_columns: writes to[i, j] = codes[i, j] scales[j] for `n` rows of kPageTokens tokens. decode_rows_of:
// writes to[j, i] = codes[j, i] scales[j] for `tokens` rows of `n`.
#define TESSERA_DECLARE(T)                                                               \
  void encode_token(const T* x, int64_t n, int8_t* codes, int64_t stride, float* scale); \
  void decode_columns(const int8_t* codes, const float* scales, int64_t n, T* to);       \
  void decode_rows_of(const int8_t* codes, const float* scales, int64_t tokens, int64_t n, T* to);
TESSERA_DECLARE(float)
TESSERA_DECLARE(double)
TESSERA_DECLARE(Bf16)
#undef TESSERA_DECLARE

}  // namespace tessera::ops::kernels
