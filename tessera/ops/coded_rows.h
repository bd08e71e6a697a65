// Weights in blocks of codes, as the kernels of the host read them.
#pragma once

#include <cstdint>

#include "tessera/ops/kernels/coded_matrix.h"
#include "tessera/ops/support.h"
#include "tessera/ops/weight.h"

namespace tessera::ops {

// Returns the matrix of blocks [out, row bytes] in `form`, which lie on the host. Valid as long as they live.
inline kernels::CodedMatrix coded_matrix(const io::BlockForm& form, const at::Tensor& blocks) {
  return {form, read<uint8_t>(blocks), blocks.stride(0)};
}
inline kernels::CodedMatrix coded_matrix(const Weight& weight) {
  return coded_matrix(*weight.form(), weight.stored());
}

// Writes the values of rows [first, first + count) to `to`; each row has `width` values.
template <class T>
void read_coded_rows(const kernels::CodedMatrix& matrix, int64_t first, int64_t count, int64_t width, T* to) {
  for (int64_t i = 0; i < count; ++i) kernels::read_coded_row(matrix, first + i, 0, width, to + i * width);
}

}  // namespace tessera::ops
