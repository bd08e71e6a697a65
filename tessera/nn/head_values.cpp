#include "tessera/nn/head_values.h"

#include <ATen/ATen.h>

namespace tessera::nn {

HeadValues::HeadValues(int64_t heads, const InitialValue& initial, at::ScalarType dtype) : initial_(initial) {
  weight =
      register_parameter("weight", at::empty({heads}, at::TensorOptions().dtype(dtype).device(at::kMeta)));
}

}  // namespace tessera::nn
