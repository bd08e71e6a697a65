#include "tessera/nn/head_norm.h"

#include <ATen/ATen.h>

namespace tessera::nn {

HeadNorm::HeadNorm(int64_t heads, int64_t head_dim, const NormOptions& options, at::ScalarType dtype)
    : options_(options) {
  weight = register_parameter(
      "weight", at::empty({heads, head_dim}, at::TensorOptions().dtype(dtype).device(at::kMeta)));
}

at::Tensor HeadNorm::normalise(const at::Tensor& x) const {
  const std::vector<int64_t> head = {x.size(-1)};
  const at::Tensor y = options_.kind == NormOptions::Kind::Layer
                           ? at::layer_norm(x, head, {}, {}, options_.eps)
                           : at::rms_norm(x, head, {}, options_.eps);
  return y * weight;
}

ops::NormedResidual HeadNorm::add_and_normalise(const at::Tensor& x,
                                                const std::optional<at::Tensor>& delta) const {
  const at::Tensor residual = delta ? x + *delta : x;
  return {residual, normalise(residual)};
}

}  // namespace tessera::nn
