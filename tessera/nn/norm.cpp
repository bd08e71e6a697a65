#include "tessera/nn/norm.h"

#include <ATen/ATen.h>

namespace tessera::nn {

at::Tensor Norm::forward(const at::Tensor& x) const {
  return run(x, [this](const ops::Activation& in) { return normalise(in.value()); });
}

ops::NormedResidual Norm::add_and_norm(const at::Tensor& x, const std::optional<at::Tensor>& delta) const {
  if (parallel() == nullptr) return add_and_normalise(x, delta);
  const at::Tensor residual = delta ? x + *delta : x;
  return {residual, forward(residual)};
}

}  // namespace tessera::nn
