// A matrix whose rows are blocks of codes, as kernels read it.
#pragma once

#include <cstdint>

#include "tessera/io/weight_blocks.h"
#include "tessera/ops/kernels/kernels.h"

namespace tessera::ops::kernels {

// `rows` rows of whole blocks of one form, row_bytes apart.
struct CodedMatrix {
  io::BlockForm form;
  const uint8_t* data = nullptr;
  int64_t row_bytes = 0;

  const uint8_t* row(int64_t i) const { return data + i * row_bytes; }
};

// Writes the values of elements [first, first + count) of one row: those of io::expand_blocks(), in Bf16
// rounded to nearest even.
void read_coded_row(const CodedMatrix& matrix, int64_t row, int64_t first, int64_t count, float* to);
void read_coded_row(const CodedMatrix& matrix, int64_t row, int64_t first, int64_t count, Bf16* to);

}  // namespace tessera::ops::kernels
