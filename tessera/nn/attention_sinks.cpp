#include "tessera/nn/attention_sinks.h"

#include <ATen/ATen.h>

namespace tessera::nn {

AttentionSinks::AttentionSinks(int64_t heads, at::ScalarType dtype) {
  weight =
      register_parameter("weight", at::empty({heads}, at::TensorOptions().dtype(dtype).device(at::kMeta)));
}

}  // namespace tessera::nn
