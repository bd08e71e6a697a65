#include "tessera/nn/rms_norm.h"

#include <ATen/ATen.h>

#include "tessera/ops/rms_norm.h"

namespace tessera::nn {

RMSNorm::RMSNorm(int64_t size, double eps, at::ScalarType dtype) : eps_(eps) {
  weight =
      register_parameter("weight", at::empty({size}, at::TensorOptions().dtype(dtype).device(at::kMeta)));
}

at::Tensor RMSNorm::forward(const at::Tensor& x) { return ops::rms_norm(x, weight, eps_); }

}  // namespace tessera::nn
