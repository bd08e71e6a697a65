#include "tessera/nn/embedding.h"

#include <ATen/ATen.h>

#include "tessera/ops/embedding.h"

namespace tessera::nn {

Embedding::Embedding(int64_t num_embeddings, int64_t hidden_size, at::ScalarType dtype) {
  const auto options = at::TensorOptions().dtype(dtype).device(at::kMeta);
  weight = register_parameter("weight", at::empty({num_embeddings, hidden_size}, options));
}

at::Tensor Embedding::forward(const at::Tensor& input_ids) const {
  return run(input_ids, [this](const ops::Activation& ids) {
    return first_row_ ? ops::embedding_part(weight, *first_row_, ids.value())
                      : ops::embedding(weight, ids.value());
  });
}

}  // namespace tessera::nn
