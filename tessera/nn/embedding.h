// The token embedding.
#pragma once

#include <torch/nn/module.h>

namespace tessera::nn {

// Rows of a table. The weight is made on the meta device, trainable.
class Embedding : public torch::nn::Module {
 public:
  Embedding(int64_t num_embeddings, int64_t hidden_size, at::ScalarType dtype);

  // input_ids: [tokens] int64, each below num_embeddings -> [tokens, hidden_size]
  at::Tensor forward(const at::Tensor& input_ids);

  at::Tensor weight;  // [num_embeddings, hidden_size]
};

}  // namespace tessera::nn
