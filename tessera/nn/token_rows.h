// Trained rows of a table of which all others are frozen.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include "tessera/nn/initial_value.h"

namespace tessera::nn {

// Holds the rows of some ids; the table's own rows of these ids are unused. The parameter
// trainable_tokens_delta has the rows themselves, [ids, hidden_size], in the order of the ids, as PEFT's
// files do. It is made on the meta device, trainable.
class TokenRows : public torch::nn::Module, public HasInitialValues {
 public:
  // The ids are different ones, each below num_embeddings.
  TokenRows(std::vector<int64_t> ids, int64_t num_embeddings, int64_t hidden_size, at::ScalarType dtype);

  // The rows begin as those of the table, which whoever puts them on it has to copy.
  InitialValue initial_value(std::string_view) const override { return InitialValue::zeros(); }

  // Rows of the table that a rank has: [first, first + size).
  struct Part {
    int64_t first = 0, size = 0;
  };
  // Returns y, [tokens, hidden_size], with the rows of those tokens whose id is one of these and in `part`.
  at::Tensor on_tokens(const at::Tensor& y, const at::Tensor& input_ids, const Part& part) const;
  // Returns a copy of the table's part, [part.size, hidden_size], with these rows in place of its own.
  at::Tensor on_table(const at::Tensor& table, const Part& part) const;
  // Returns logits of the part, [tokens, part.size], with those of these rows: `product` multiplies some of
  // the rows, [rows, hidden_size], with the hidden states, and returns [tokens, rows].
  template <class Product>
  at::Tensor on_logits(const at::Tensor& logits, const Part& part, const Product& product) const {
    const auto [columns, own] = rows_in(part, logits.device());
    if (columns.numel() == 0) return logits;
    return logits.index_copy(-1, columns, product(rows.index_select(0, own)));
  }

  const std::vector<int64_t>& ids() const { return ids_; }

  at::Tensor rows;  // trainable_tokens_delta

 private:
  // Returns the places in the part of those ids that are in it, and their places in `rows`.
  std::pair<at::Tensor, at::Tensor> rows_in(const Part& part, at::Device device) const;

  const std::vector<int64_t> ids_;
  const int64_t num_embeddings_;
  // For each id of the table its place in `rows`, or -1; on the device of the last call.
  mutable at::Tensor row_of_;
};

}  // namespace tessera::nn
