// Rows of a stored tensor into memory, converted.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "tessera/core/dtype.h"
#include "tessera/io/model_files.h"

namespace tessera::nn {

// Whether weights are read from tensors of this type: F64, F32, F16 and BF16.
bool is_weight_dtype(DType dtype);

// Reads rows [first_row, first_row + num_rows) along dim 0 of a stored tensor into `destination`: contiguous
// CPU memory of num_rows times the row's elements, of a floating type, to which the values are converted. A
// tensor of rank 0 has one row. Needs at most 16 MiB beside the destination, and nothing where the types
// agree. Throws Error(Model) for a missing tensor and for stored types other than F64, F32, F16 and BF16.
void read_rows(const io::ModelFiles& files, const std::string& name, int64_t first_row, int64_t num_rows,
               at::Tensor destination);

}  // namespace tessera::nn
