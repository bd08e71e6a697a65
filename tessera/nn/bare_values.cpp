#include "tessera/nn/bare_values.h"

#include <ATen/ATen.h>

namespace tessera::nn {

BareValues::BareValues(int64_t count, const InitialValue& initial, at::ScalarType dtype) : initial_(initial) {
  weight =
      register_parameter("weight", at::empty({count}, at::TensorOptions().dtype(dtype).device(at::kMeta)));
}

}  // namespace tessera::nn
