#include "tessera/nn/rms_norm.h"

#include <ATen/ATen.h>

namespace tessera::nn {

RMSNorm::RMSNorm(int64_t size, double eps, at::ScalarType dtype) : eps_(eps) {
  weight =
      register_parameter("weight", at::empty({size}, at::TensorOptions().dtype(dtype).device(at::kMeta)));
}

at::Tensor RMSNorm::normalise(const at::Tensor& x) const { return ops::rms_norm(x, weight, eps_); }

ops::NormedResidual RMSNorm::add_and_normalise(const at::Tensor& x,
                                               const std::optional<at::Tensor>& delta) const {
  return ops::add_rms_norm(x, delta, weight, eps_);
}

}  // namespace tessera::nn
