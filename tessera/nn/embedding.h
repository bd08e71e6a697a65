// The token embedding.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tessera/nn/initial_value.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/token_rows.h"
#include "tessera/nn/virtual_rows.h"
#include "tessera/ops/weight.h"

namespace tessera::nn {

// Looks up rows of a table. The weight is made on the meta device, trainable.
class Embedding : public Layer, public HasInitialValues {
 public:
  Embedding(int64_t num_embeddings, int64_t hidden_size, at::ScalarType dtype);

  InitialValue initial_value(std::string_view) const override { return InitialValue::normal(); }
  // input_ids: [tokens] int64, each below num_embeddings or one of virtual_rows() -> [tokens, hidden_size].
  at::Tensor forward(const at::Tensor& input_ids) const;

  // Keeps the table in blocks of this form from now on, as Linear::set_form() does. It takes no part() then,
  // and no rows of tokens.
  void set_form(const io::BlockForm& form);
  // The type of the values, also of those of a coded table.
  at::ScalarType dtype() const { return form_ ? dtype_ : weight.scalar_type(); }
  ops::Weight operand() const { return {weight, form_}; }

  // Declares that the weight holds the rows [first_row, first_row + weight.size(0)) of the table. Ids of
  // other rows then give zeros, so the sum over the ranks that hold the parts is the whole result.
  void set_first_row(int64_t first_row) { first_row_ = first_row; }
  // Lets the lookup give this row of the table no gradient. An output projection with the same weight does.
  void set_fixed_row(int64_t row) { fixed_row_ = row; }
  // In training, embedding_noise_here() is added to the output. If the table is cut, each rank adds the noise
  // of the tokens whose rows it holds.
  void set_noise(double alpha) { noise_alpha_ = alpha; }

  // Gives these ids rows of their own from now on, which become the child token_adapter; an output projection
  // that has the table's weight takes them too (OutputHead). Called once; they are made on the meta device.
  void set_token_rows(std::vector<int64_t> ids);
  // Returns null if no ids have rows of their own.
  const std::shared_ptr<TokenRows>& token_rows() const { return token_rows_; }
  // Gives rows to `count` ids behind those of the table, which become the child prompt_adapter. Called once,
  // while the weight has its whole shape; they are made on the meta device. They get no noise.
  void set_virtual_rows(int64_t count);
  // Returns null if there are none.
  const std::shared_ptr<VirtualRows>& virtual_rows() const { return virtual_rows_; }
  // Returns which rows of the table the weight holds.
  TokenRows::Part part() const { return {first_row_.value_or(0), weight.size(0)}; }

  at::Tensor weight;  // [num_embeddings, hidden_size], or the bytes of blocks

 private:
  at::Tensor with_noise(const at::Tensor& y, const at::Tensor& input_ids) const;

  ops::WeightForm form_;
  at::ScalarType dtype_;
  std::optional<int64_t> first_row_;
  int64_t fixed_row_ = -1;
  std::shared_ptr<TokenRows> token_rows_;
  std::shared_ptr<VirtualRows> virtual_rows_;
  double noise_alpha_ = 0.0;
};

}  // namespace tessera::nn
