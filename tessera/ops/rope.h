// Rotary position embedding as one autograd function.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::ops {

// Says which elements of a head are rotated together. The first 2 half of them are, where a token has `half`
// angles; the others stay as they are.
struct RopeForm {
  int64_t head_dim = 0;  // 0: the whole head is rotated
  // Pairs are neighbours, (x[2i], x[2i + 1]), instead of (x[i], x[i + half]), the "rotate half" convention.
  bool is_interleaved = false;
};

// Rotates, in place, the pairs (a, b) of every head by the angle of its token:
//   a[i] := a[i] cos[i] - b[i] sin[i],  b[i] := b[i] cos[i] + a[i] sin[i].
//
// x: [tokens, heads * head_dim] or [tokens, heads, head_dim], dense, float32, float64 or bfloat16, fresh from
// a product or a norm: it is overwritten, and returned. With a gradient it must be neither a leaf nor a view,
// and no other op may have kept its values. cos, sin: [tokens, half], float32 or float64, without gradient.
// Saves cos and sin alone; the backward rotates the gradient back.
at::Tensor apply_rope_(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                       const RopeForm& form = {});

}  // namespace tessera::ops
