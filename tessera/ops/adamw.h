// One update of Adam with decoupled weight decay.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/ops/kernels/kernels.h"

namespace tessera::ops {

struct AdamWUpdate {
  int64_t step = 1;  // t of the paper: 1 for the first update
  double learning_rate = 0.0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.0;
  double gradient_scale = 1.0;  // the gradient is multiplied by it on the way

  kernels::AdamWFactors factors() const;
};

// Dense tensors of equal size on one device; value, exp_avg and exp_avg_sq of one type (float32, float64 or
// bfloat16), which the update is computed in, but in float32 for bfloat16. A gradient of the same type or
// bfloat16 is read as it is, another one is converted.
struct AdamWTensors {
  at::Tensor value, gradient, exp_avg, exp_avg_sq;
  AdamWUpdate update;

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
