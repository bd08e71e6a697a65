// Rows of numbers as small integers with scales, for messages between ranks.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "tessera/ops/kernels/row_codes.h"

namespace tessera::ops {

// Codes of 8 or 4 bits for the rows of a matrix. A row is cut into blocks of even lengths, each with a scale
// of its own: the block's largest magnitude over 127 or 7. A code is a number over its scale, rounded to
// nearest, so a number comes back with an error of at most half of the scale. A block with a number that is
// not finite comes back as numbers that are not finite. Magnitudes below 1e-36 come back as 0.
//
// No block crosses rows, so the codes of a row do not depend on the rows that are coded with it. All ranks
// that decode one code get the same bits.
class RowCodes {
 public:
  // `row_numel`: elements of a row. `bits`: 8 or 4.
  RowCodes(int bits, int64_t row_numel);

  // Returns the bytes of `numel` elements, which are whole rows: for each row 4 ceil(row_numel / block) bytes
  // of scales, and row_numel x bits / 8, rounded up, of codes.
  int64_t num_bytes(int64_t numel) const;
  // The largest block: 256 elements with 8 bits, 128 with 4.
  static int64_t largest_block(int bits) { return bits == 8 ? 256 : 128; }

  // Writes the codes of `values`, whole rows of a floating type, to `codes`, dense bytes [num_bytes(numel)],
  // on the same device.
  void encode(const at::Tensor& codes, const at::Tensor& values) const;
  // Writes the numbers of `codes` to `values`, which is dense, of a floating type and holds whole rows; add()
  // adds them.
  void decode(const at::Tensor& values, const at::Tensor& codes) const;
  void add(const at::Tensor& sums, const at::Tensor& codes) const;
  // Writes to `to` what becomes of `values` if they are coded and decoded.
  void round(const at::Tensor& to, const at::Tensor& values) const;

 private:
  void decode(const at::Tensor& values, const at::Tensor& codes, bool adds) const;

  kernels::CodedRow form_;
};

}  // namespace tessera::ops
