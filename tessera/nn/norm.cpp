#include "tessera/nn/norm.h"

#include <ATen/ATen.h>

#include "tessera/nn/layer_norm.h"
#include "tessera/nn/rms_norm.h"
#include "tessera/nn/unscaled_norm.h"

namespace tessera::nn {

at::Tensor Norm::forward(const at::Tensor& x) const {
  return run(x, [this](const ops::Activation& in) { return normalise(in.value()); });
}

ops::NormedResidual Norm::add_and_norm(const at::Tensor& x, const std::optional<at::Tensor>& delta) const {
  if (parallel() == nullptr) return add_and_normalise(x, delta);
  const at::Tensor residual = delta ? x + *delta : x;
  return {residual, forward(residual)};
}

std::shared_ptr<Norm> make_norm(int64_t size, const NormOptions& options, at::ScalarType dtype) {
  if (options.kind == NormOptions::Kind::Layer) return std::make_shared<LayerNorm>(size, options, dtype);
  if (!options.has_scale) return std::make_shared<UnscaledNorm>(options.eps);
  return std::make_shared<RMSNorm>(size, options.eps, dtype, options.adds_one);
}

}  // namespace tessera::nn
