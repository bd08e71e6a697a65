// LayerNorm with a learned scale and bias.
#pragma once

#include "tessera/nn/initial_value.h"
#include "tessera/nn/norm.h"

namespace tessera::nn {

// Computes (x - mean) / sqrt(variance + eps) * weight + bias with LibTorch's kernels. Parameters are made on
// the meta device, trainable.
class LayerNorm : public Norm, public HasInitialValues {
 public:
  LayerNorm(int64_t size, double eps, at::ScalarType dtype);

  InitialValue initial_value(std::string_view name) const override {
    return name == "bias" ? InitialValue::zeros() : InitialValue::ones();
  }

  at::Tensor weight, bias;  // [size]

 protected:
  at::Tensor normalise(const at::Tensor& x) const override;
  ops::NormedResidual add_and_normalise(const at::Tensor& x,
                                        const std::optional<at::Tensor>& delta) const override;

 private:
  double eps_;
};

}  // namespace tessera::nn
