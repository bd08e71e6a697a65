// Rotary position embedding as one autograd function.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::ops {

// Rotates the pairs (x[i], x[i + head_dim/2]) of every head by the angle of its token, the "rotate half"
// convention of Hugging Face models:
//   y[i] = x[i] cos[i] - x[i + half] sin[i],  y[i + half] = x[i + half] cos[i] + x[i] sin[i].
//
// x: [tokens, heads, head_dim] with an even head_dim, float32, float64 or bfloat16; may be a slice of a wider
// tensor as long as its last dimension is dense. cos, sin: [tokens, head_dim/2], float32 or float64, without
// gradient. The result is contiguous, with x's type. Saves cos and sin alone; the backward pass rotates back.
at::Tensor apply_rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace tessera::ops
