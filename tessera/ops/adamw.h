// One update of Adam with decoupled weight decay.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/core/rng.h"
#include "tessera/ops/kernels/kernels.h"
#include "tessera/ops/random_elements.h"

namespace tessera::ops {

struct AdamWUpdate {
  int64_t step = 1;  // t of the paper: 1 for the first update
  double learning_rate = 0.0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.0;
  double gradient_scale = 1.0;  // the gradient is multiplied by it on the way

  kernels::AdamWFactors factors() const;
};

// Stochastic rounding of what an update stores in bfloat16: of a float32 result's bits, the lower 16 are
// rounded up with the probability of their value. The element with number i adds 16 random bits, half i % 2
// (0: the lower one) of the word i / 2 % 4 of words(i / 8) at this step, and drops the lower 16; infinity and
// NaN stay.
struct AdamWRounding {
  CounterRng value, exp_avg, exp_avg_sq;
  uint64_t step;
  ElementNumbers numbers;  // of the tensors' elements; without of_rows
};

// Dense tensors of equal size on one device: value of float32, float64, bfloat16 or float16, exp_avg and
// exp_avg_sq of its type or of bfloat16. The update is computed in value's type, but in float32 for bfloat16
// and float16, and new states go into the value before they are rounded. A gradient of the same type or
// bfloat16 is read as it is, another one is converted.
struct AdamWTensors {
  at::Tensor value, gradient, exp_avg, exp_avg_sq;
  AdamWUpdate update;
  std::optional<AdamWRounding> rounding = {};  // none: to nearest even

  at::Tensor readable_gradient() const;
};

// Updates the values and their states in place, in one pass over the memory (Loshchilov and Hutter,
// "Decoupled weight decay regularization", 2019, algorithm 2, as torch.optim.AdamW computes it). All on one
// device; a CUDA device may scale gradients in place.
//
// device_scale: a scalar in float64 on that device, by which the gradients are multiplied too, and for which
// nobody waits; NaN: nothing is changed. Undefined: 1.
void adamw(const std::vector<AdamWTensors>& all, const at::Tensor& device_scale = {});

}  // namespace tessera::ops
