#include "tessera/nn/layer_norm.h"

#include <ATen/ATen.h>

namespace tessera::nn {

LayerNorm::LayerNorm(int64_t size, const NormOptions& kind, at::ScalarType dtype) : size_(size), kind_(kind) {
  if (!kind.has_scale) return;
  const auto options = at::TensorOptions().dtype(dtype).device(at::kMeta);
  weight = register_parameter("weight", at::empty({size}, options));
  if (kind.has_bias) bias = register_parameter("bias", at::empty({size}, options));
}

at::Tensor LayerNorm::normalise(const at::Tensor& x) const {
  const at::Tensor scale = kind_.adds_one ? weight + 1 : weight;
  // LibTorch computes no norm of tensors without memory. A product keeps as much for the backward.
  if (x.is_meta()) return scale.defined() ? x * scale : x.clone();
  return at::layer_norm(x, {size_}, scale, bias, kind_.eps);
}

ops::NormedResidual LayerNorm::add_and_normalise(const at::Tensor& x,
                                                 const std::optional<at::Tensor>& delta) const {
  const at::Tensor residual = delta ? x + *delta : x;
  return {residual, normalise(residual)};
}

}  // namespace tessera::nn
