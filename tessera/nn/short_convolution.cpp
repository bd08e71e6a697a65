#include "tessera/nn/short_convolution.h"

#include <ATen/ATen.h>

namespace tessera::nn {

ShortConvolution::ShortConvolution(int64_t channels, int64_t taps, at::ScalarType dtype, bool has_bias) {
  const auto options = at::TensorOptions().dtype(dtype).device(at::kMeta);
  weight = register_parameter("weight", at::empty({channels, 1, taps}, options));
  if (has_bias) bias = register_parameter("bias", at::empty({channels}, options));
}

}  // namespace tessera::nn
