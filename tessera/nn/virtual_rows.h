// Trained rows of an embedding that belong to no token of the vocabulary (prompt tuning, Lester et al., arXiv
// 2104.08691).
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "tessera/nn/initial_value.h"

namespace tessera::nn {

// Gives rows to the ids [first_id, first_id + count), which stand behind all ids of the table. The parameter
// `weight`, [count, hidden_size], is made on the meta device, trainable.
class VirtualRows : public torch::nn::Module, public HasInitialValues {
 public:
  VirtualRows(int64_t first_id, int64_t count, int64_t hidden_size, at::ScalarType dtype);

  // PEFT's: normal values with the standard deviation 1.
  InitialValue initial_value(std::string_view) const override { return InitialValue::gaussian(1.0); }
  // Returns y, [tokens, hidden_size], with these rows for the tokens with their ids, or with zeros unless
  // `has_them`: of the ranks whose results are summed, one has them.
  at::Tensor on_tokens(const at::Tensor& y, const at::Tensor& input_ids, bool has_them) const;
  // Returns the ids with one of the table, 0, in place of these.
  at::Tensor without_own(const at::Tensor& input_ids) const;

  int64_t first_id() const { return first_id_; }
  int64_t count() const { return count_; }

  at::Tensor weight;

 private:
  const int64_t first_id_, count_;
};

}  // namespace tessera::nn
