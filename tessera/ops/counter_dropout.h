// Dropout masks and noise that do not depend on how a tensor is split over ranks.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

namespace tessera::ops {

// A mask of 0 (with probability p) and 1/(1-p), 0 <= p < 1, to multiply with. Element i (row-major) is
// a function of (seed, stream, step, first_index + i) alone: a rank that holds a slice of a tensor
// passes the global index of the slice's first element and draws what one process would have drawn there.
// With row_width, what is drawn is a part of every row (along the last dim) of a tensor with rows of that
// width, whose first element has the index first_index. Of float32, float64 or bfloat16. The same on
// every device. Throws Error(Config, "DROPOUT-RANGE") for another p.
at::Tensor dropout_mask(at::IntArrayRef sizes, double p, uint64_t seed, uint64_t stream, uint64_t step,
                        int64_t first_index, const at::TensorOptions& options, int64_t row_width = 0);

// The same of rows of a tensor in any order: those of the mask, [rows, width], begin with the indices
// first_indices.
at::Tensor dropout_mask_of_rows(const std::vector<int64_t>& first_indices, int64_t width, double p,
                                uint64_t seed, uint64_t stream, uint64_t step,
                                const at::TensorOptions& options);

// Uniform numbers between -1 and 1, drawn as dropout_mask() draws.
at::Tensor uniform_noise(at::IntArrayRef sizes, uint64_t seed, uint64_t stream, uint64_t step,
                         int64_t first_index, const at::TensorOptions& options);

}  // namespace tessera::ops
