#include "tessera/nn/head_norm.h"

#include <utility>

#include <ATen/ATen.h>

namespace tessera::nn {

HeadNorm::HeadNorm(int64_t heads, int64_t head_dim, const NormOptions& options, at::ScalarType dtype,
                   std::string stored_list)
    : options_(options), stored_list_(std::move(stored_list)), head_dim_(head_dim) {
  const at::Tensor scales = at::empty({heads, head_dim}, at::TensorOptions().dtype(dtype).device(at::kMeta));
  weight = register_parameter("weight", stored_list_.empty() ? scales : scales.flatten());
}

at::Tensor HeadNorm::normalise(const at::Tensor& x) const {
  const std::vector<int64_t> head = {x.size(-1)};
  const at::Tensor scale = weight.view({-1, head_dim_});
  // LibTorch computes no norm of tensors without memory.
  if (x.is_meta()) return x.clone() * scale;
  const at::Tensor y = options_.kind == NormOptions::Kind::Layer
                           ? at::layer_norm(x, head, {}, {}, options_.eps)
                           : at::rms_norm(x, head, {}, options_.eps);
  return y * scale;
}

ops::NormedResidual HeadNorm::add_and_normalise(const at::Tensor& x,
                                                const std::optional<at::Tensor>& delta) const {
  const at::Tensor residual = delta ? x + *delta : x;
  return {residual, normalise(residual)};
}

}  // namespace tessera::nn
