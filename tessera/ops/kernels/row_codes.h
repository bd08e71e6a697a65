// Rows of numbers as small integers with one scale for each block of a row, as kernels read and write them.
#pragma once

#include <cstdint>

#include "tessera/ops/kernels/kernels.h"

namespace tessera::ops::kernels {

// The places in a coded row: num_blocks scales in float32, which need not be aligned, then `width` codes. A
// code of 8 bits is a signed byte. Two codes of 4 bits share a byte, the first one in its low half, each with
// 8 added.
struct CodedRow {
  int bits = 8;
  int64_t width = 0, block = 0, num_blocks = 0;  // `block` is even, at most kLargestBlock
  int64_t row_bytes = 0;

  static constexpr int64_t kLargestBlock = 256;
  float largest_code() const { return bits == 8 ? 127.0f : 7.0f; }
};

// Codes and decodes `rows` rows, one behind the other. With `adds` the values are added to those in `to`.
#define TESSERA_DECLARE(T)                                                          \
  void encode_rows(const T* from, int64_t rows, const CodedRow& form, uint8_t* to); \
  void decode_rows(const uint8_t* from, int64_t rows, const CodedRow& form, T* to, bool adds);
TESSERA_DECLARE(float)
TESSERA_DECLARE(double)
TESSERA_DECLARE(Bf16)
#undef TESSERA_DECLARE

}  // namespace tessera::ops::kernels
