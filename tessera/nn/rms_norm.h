// RMSNorm with a learned scale.
#pragma once

#include "tessera/nn/initial_value.h"
#include "tessera/nn/norm.h"

namespace tessera::nn {

// Computes ops::rms_norm(). The weight is made on the meta device, trainable.
class RMSNorm : public Norm, public HasInitialValues {
 public:
  RMSNorm(int64_t size, double eps, at::ScalarType dtype);

  InitialValue initial_value(std::string_view) const override { return InitialValue::ones(); }

  at::Tensor weight;  // [size]

 protected:
  at::Tensor normalise(const at::Tensor& x) const override;
  ops::NormedResidual add_and_normalise(const at::Tensor& x,
                                        const std::optional<at::Tensor>& delta) const override;

 private:
  double eps_;
};

}  // namespace tessera::nn
