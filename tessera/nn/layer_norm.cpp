#include "tessera/nn/layer_norm.h"

#include <ATen/ATen.h>

namespace tessera::nn {

LayerNorm::LayerNorm(int64_t size, double eps, at::ScalarType dtype) : eps_(eps) {
  const auto options = at::TensorOptions().dtype(dtype).device(at::kMeta);
  weight = register_parameter("weight", at::empty({size}, options));
  bias = register_parameter("bias", at::empty({size}, options));
}

at::Tensor LayerNorm::normalise(const at::Tensor& x) const {
  return at::layer_norm(x, weight.sizes(), weight, bias, eps_);
}

ops::NormedResidual LayerNorm::add_and_normalise(const at::Tensor& x,
                                                 const std::optional<at::Tensor>& delta) const {
  const at::Tensor residual = delta ? x + *delta : x;
  return {residual, normalise(residual)};
}

}  // namespace tessera::nn
