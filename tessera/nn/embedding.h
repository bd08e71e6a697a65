// The token embedding.
#pragma once

#include <optional>

#include "tessera/nn/initial_value.h"
#include "tessera/nn/layer.h"

namespace tessera::nn {

// Rows of a table. The weight is made on the meta device, trainable.
class Embedding : public Layer, public HasInitialValues {
 public:
  Embedding(int64_t num_embeddings, int64_t hidden_size, at::ScalarType dtype);

  InitialValue initial_value(std::string_view) const override { return InitialValue::normal(); }
  // input_ids: [tokens] int64, each below num_embeddings -> [tokens, hidden_size]
  at::Tensor forward(const at::Tensor& input_ids) const;

  // From now on the weight holds rows [first_row, first_row + weight.size(0)) of the table, and ids of others
  // give zeros: the sum over the holders of all rows is the whole.
  void set_first_row(int64_t first_row) { first_row_ = first_row; }

  at::Tensor weight;  // [num_embeddings, hidden_size]

 private:
  std::optional<int64_t> first_row_;
};

}  // namespace tessera::nn
