// RMSNorm with a learned scale.
#pragma once

#include <optional>

#include <torch/nn/module.h>

#include "tessera/ops/rms_norm.h"

namespace tessera::nn {

// Normalises the last dimension (ops::rms_norm). The weight is made on the meta device, trainable.
class RMSNorm : public torch::nn::Module {
 public:
  RMSNorm(int64_t size, double eps, at::ScalarType dtype);

  // x: [..., size]
  at::Tensor forward(const at::Tensor& x);
  // x + delta, and its norm for products to read (ops::add_rms_norm).
  ops::NormedResidual add_and_norm(const at::Tensor& x,
                                   const std::optional<at::Tensor>& delta = std::nullopt);

  at::Tensor weight;  // [size]

 private:
  double eps_;
};

}  // namespace tessera::nn
