// LibTorch's flash attention 2 for documents of any lengths.
#pragma once

#include <c10/core/ScalarType.h>

#include "tessera/ops/cuda/varlen.h"

namespace tessera::ops::cuda {

// Tells whether flash attention 2 computes this: bfloat16 and float16, heads of 8 to 256 in steps of 8, no
// soft cap.
bool flash_computes(at::ScalarType type, int64_t head_dim, const AttentionFormula& formula);

// Returns the kernel for tensors of a CUDA device of compute capability 8.0 and later. The gradients of keys
// are summed in an order that differs from call to call, unless at::Context::deterministicAlgorithms() is
// set.
const VarlenKernel& flash_attention();

// Does what Leaves::attend_rows does, by flash attention 2.
at::Tensor flash_attend_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& lengths, const AttentionFormula& formula);

}  // namespace tessera::ops::cuda
