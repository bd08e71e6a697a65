// Stochastic rounding to bfloat16.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "tessera/core/rng.h"
#include "tessera/ops/random_elements.h"

namespace tessera::ops {

// The random bits of one tensor's elements at one step. A float32 value is rounded up with the probability
// that its lower 16 bits say: the element with number i adds 16 random bits, half i % 2 (0: the lower one) of
// the word i / 2 % 4 of rng's words(i / 8) at this step, and drops the lower 16 bits of the sum; infinity and
// NaN stay.
struct RoundingBits {
  CounterRng rng;
  uint64_t step;
  ElementNumbers numbers;  // numbers of the elements; its of_rows must be null

  // Writes the bits of elements [begin, end) of the tensor, which lie in one row, on the host.
  void draw(int64_t begin, int64_t end, uint16_t* bits) const;
  // Returns the bits of elements [begin, end): [end - begin], int32, below 2^16, on `device`.
  at::Tensor on_device(int64_t begin, int64_t end, at::Device device) const;
};

// Writes `from`, [elements] in float32, to `to`, [elements] in bfloat16 on the same device, both dense, each
// element rounded by its bits.
void round_into(const at::Tensor& to, const at::Tensor& from, const RoundingBits& bits);
// Returns x in bfloat16, rounded by `bits`, which has x's shape and is as on_device() makes it.
at::Tensor rounded_by(const at::Tensor& bits, const at::Tensor& x);

}  // namespace tessera::ops
