// RMSNorm with a learned scale.
#pragma once

#include <torch/nn/module.h>

namespace tessera::nn {

// Normalises the last dimension (ops::rms_norm). The weight is made on the meta device, trainable.
class RMSNorm : public torch::nn::Module {
 public:
  RMSNorm(int64_t size, double eps, at::ScalarType dtype);

  // x: [..., size]
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight;  // [size]

 private:
  double eps_;
};

}  // namespace tessera::nn
