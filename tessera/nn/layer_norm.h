// LayerNorm with or without a learned scale and bias.
#pragma once

#include "tessera/nn/initial_value.h"
#include "tessera/nn/norm.h"

namespace tessera::nn {

// Computes (x - mean) / sqrt(variance + eps) * weight + bias with LibTorch's kernels; the options say what of
// it there is. Parameters are made on the meta device, trainable.
class LayerNorm : public Norm, public HasInitialValues {
 public:
  LayerNorm(int64_t size, const NormOptions& kind, at::ScalarType dtype);

  InitialValue initial_value(std::string_view name) const override {
    return name == "bias" || kind_.adds_one ? InitialValue::zeros() : InitialValue::ones();
  }

  at::Tensor weight, bias;  // [size]; undefined where the options leave them out

 protected:
  at::Tensor normalise(const at::Tensor& x) const override;
  ops::NormedResidual add_and_normalise(const at::Tensor& x,
                                        const std::optional<at::Tensor>& delta) const override;

 private:
  const int64_t size_;
  const NormOptions kind_;
};

}  // namespace tessera::nn
