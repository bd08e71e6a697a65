// One update of Adam with decoupled weight decay (AdamW).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/core/rng.h"
#include "tessera/ops/kernels/kernels.h"
#include "tessera/ops/stochastic_rounding.h"

namespace tessera::ops {

struct AdamWUpdate {
  int64_t step = 1;  // t of the paper: 1 for the first update
  double learning_rate = 0.0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.0;
  double gradient_scale = 1.0;  // every gradient is multiplied by it as it is read

  kernels::AdamWFactors factors() const;
};

// Stochastic rounding (stochastic_rounding.h) of what an update stores in bfloat16.
struct AdamWRounding {
  CounterRng value, exp_avg, exp_avg_sq;
  uint64_t step;
  ElementNumbers numbers;  // numbers of the tensors' elements; its of_rows must be null

  // Returns the bits of one of the three.
  RoundingBits of(const CounterRng& rng) const { return {rng, step, numbers}; }
};

// A value with its gradient and states: tensors of equal size on one device, dense but for the gradient.
// value is float32, float64, bfloat16 or float16; exp_avg and exp_avg_sq are both of its type or both
// bfloat16. The update is computed in value's type, but in float32 for bfloat16 and float16, and the value is
// updated by the new states before they are rounded. A gradient of value's type or bfloat16 is read as it is,
// another one is converted.
struct AdamWTensors {
  at::Tensor value, gradient, exp_avg, exp_avg_sq;
  AdamWUpdate update;
  std::optional<AdamWRounding> rounding = {};  // none: results are rounded to nearest even

  // Returns the gradient as the leaves read it: dense, in bfloat16 if it is so, else in value's type.
  at::Tensor readable_gradient() const;
};

// Updates all values and their states in place, in one pass over the memory (Loshchilov and Hutter,
// "Decoupled weight decay regularization", 2019, algorithm 2, as torch.optim.AdamW computes it). All tensors
// lie on one device; a CUDA device may scale the gradients in place.
//
// device_scale: a float64 scalar on that device by which the gradients are multiplied too; the host does not
// wait for its value. If it is NaN, nothing is changed; undefined stands for 1.
void adamw(const std::vector<AdamWTensors>& all, const at::Tensor& device_scale = {});

}  // namespace tessera::ops
