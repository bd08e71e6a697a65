// RMSNorm without a weight.
#pragma once

#include "tessera/nn/norm.h"

namespace tessera::nn {

// Computes x / sqrt(mean(x^2) + eps) over the last dim with LibTorch's kernels.
class UnscaledNorm : public Norm {
 public:
  explicit UnscaledNorm(double eps) : eps_(eps) {}

 protected:
  at::Tensor normalise(const at::Tensor& x) const override;
  ops::NormedResidual add_and_normalise(const at::Tensor& x,
                                        const std::optional<at::Tensor>& delta) const override;

 private:
  const double eps_;
};

}  // namespace tessera::nn
