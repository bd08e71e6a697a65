#include "tessera/nn/embedding.h"

#include <ATen/ATen.h>

#include "tessera/ops/embedding.h"

namespace tessera::nn {

Embedding::Embedding(int64_t num_embeddings, int64_t hidden_size, at::ScalarType dtype) {
  const auto options = at::TensorOptions().dtype(dtype).device(at::kMeta);
  weight = register_parameter("weight", at::empty({num_embeddings, hidden_size}, options));
}

at::Tensor Embedding::forward(const at::Tensor& input_ids) { return ops::embedding(weight, input_ids); }

}  // namespace tessera::nn
