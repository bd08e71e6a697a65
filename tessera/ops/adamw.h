// One update of Adam with decoupled weight decay.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::ops {

struct AdamWUpdate {
  int64_t step = 1;  // t of the paper: 1 for the first update
  double learning_rate = 0.0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.0;
  double gradient_scale = 1.0;  // the gradient is multiplied by it on the way
};

// Updates `value` and the two states in place, in one pass over the memory (Loshchilov and Hutter, "Decoupled
// weight decay regularization", 2019, algorithm 2, as torch.optim.AdamW computes it). Dense tensors of
// equal size; value, exp_avg, exp_avg_sq of one type (float32, float64 or bfloat16), computed in
// float32 or float64; the gradient of the same type or bfloat16 is read as it is, another one is converted.
void adamw(const at::Tensor& value, const at::Tensor& gradient, const at::Tensor& exp_avg,
           const at::Tensor& exp_avg_sq, const AdamWUpdate& update);

}  // namespace tessera::ops
