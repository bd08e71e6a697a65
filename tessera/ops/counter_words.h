// Counter-based random numbers (core/rng.h) by LibTorch's operations, on any device.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "tessera/core/rng.h"
#include "tessera/ops/random_elements.h"

namespace tessera::ops {

// Returns the numbers of the elements from `begin` to `end` (not included) of a tensor: [end - begin], int64
// on `device`.
at::Tensor numbers_of_elements(const ElementNumbers& numbers, int64_t begin, int64_t end, at::Device device);

// Returns word i % 4 of rng's words(i / 4) at this step for every i of `index`: int64 of index's shape, below
// 2^32.
at::Tensor counter_words(const CounterRng& rng, uint64_t step, const at::Tensor& index);

}  // namespace tessera::ops
