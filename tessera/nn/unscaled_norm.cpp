#include "tessera/nn/unscaled_norm.h"

#include <ATen/ATen.h>

namespace tessera::nn {

at::Tensor UnscaledNorm::normalise(const at::Tensor& x) const {
  // LibTorch computes no norm of tensors without memory. A product keeps as much for the backward.
  return x.is_meta() ? x * x : at::rms_norm(x, {x.size(-1)}, {}, eps_);
}

ops::NormedResidual UnscaledNorm::add_and_normalise(const at::Tensor& x,
                                                    const std::optional<at::Tensor>& delta) const {
  const at::Tensor residual = delta ? x + *delta : x;
  return {residual, normalise(residual)};
}

}  // namespace tessera::nn
