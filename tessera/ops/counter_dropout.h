// Dropout masks and noise that do not depend on how a tensor is split over ranks.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

namespace tessera::ops {

// Returns a mask of 0 (with probability p) and 1/(1-p), 0 <= p < 1, to multiply with. Element i (row-major)
// is a function of (seed, stream, step, first_index + i) alone: a rank that holds a slice of a tensor passes
// the global index of the slice's first element and draws what one process would have drawn there. With
// row_width, the mask covers a part of every row (along the last dim) of a tensor whose rows have row_width
// elements; the part's first element has the index first_index. `options` ask for float32, float64 or
// bfloat16; the values are equal on every device. Throws Error(Config, "DROPOUT-RANGE") for another p.
at::Tensor dropout_mask(at::IntArrayRef sizes, double p, uint64_t seed, uint64_t stream, uint64_t step,
                        int64_t first_index, const at::TensorOptions& options, int64_t row_width = 0);

// Returns dropout_mask() for rows of a tensor in any order: row r of the mask, [rows, width], begins with the
// index first_indices[r].
at::Tensor dropout_mask_of_rows(const std::vector<int64_t>& first_indices, int64_t width, double p,
                                uint64_t seed, uint64_t stream, uint64_t step,
                                const at::TensorOptions& options);

// Returns uniform numbers between -1 and 1, drawn as dropout_mask() draws.
at::Tensor uniform_noise(at::IntArrayRef sizes, uint64_t seed, uint64_t stream, uint64_t step,
                         int64_t first_index, const at::TensorOptions& options);

}  // namespace tessera::ops
