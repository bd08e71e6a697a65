// Rotary position embedding as one autograd function.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::ops {

// Rotates, in place, the pairs (x[i], x[i + head_dim/2]) of every head by the angle of its token, the "rotate
// half" convention of Hugging Face models:
//   y[i] = x[i] cos[i] - x[i + half] sin[i],  y[i + half] = x[i + half] cos[i] + x[i] sin[i].
//
// x: [tokens, heads * head_dim] or [tokens, heads, head_dim], dense, float32, float64 or bfloat16, fresh from
// a product or a norm: it is overwritten, and returned. With a gradient it must be neither a leaf nor a view,
// and no other op may have kept its values. cos, sin: [tokens, head_dim/2], float32 or float64, without
// gradient. Saves cos and sin alone; the backward rotates the gradient back.
at::Tensor apply_rope_(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace tessera::ops
