#include "tessera/nn/embedding.h"

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/nn/materialize.h"
#include "tessera/nn/random_scope.h"
#include "tessera/ops/embedding.h"

namespace tessera::nn {

Embedding::Embedding(int64_t num_embeddings, int64_t hidden_size, at::ScalarType dtype) : dtype_(dtype) {
  const auto options = at::TensorOptions().dtype(dtype).device(at::kMeta);
  weight = register_parameter("weight", at::empty({num_embeddings, hidden_size}, options));
}

at::Tensor Embedding::forward(const at::Tensor& input_ids) const {
  return run(input_ids, [this](const ops::Activation& all) {
    const at::Tensor ids = virtual_rows_ == nullptr ? all.value() : virtual_rows_->without_own(all.value());
    at::Tensor y = first_row_ ? ops::embedding_part(weight, *first_row_, ids, fixed_row_)
                   : form_    ? ops::coded_embedding(operand(), ids, dtype_)
                              : ops::embedding(weight, ids, fixed_row_);
    if (token_rows_ != nullptr) y = token_rows_->on_tokens(y, ids, part());
    if (noise_alpha_ > 0.0 && is_training()) y = with_noise(y, ids);
    if (virtual_rows_ == nullptr) return y;
    // The rank with the first row of the table has these rows, and the others that share the table zeros.
    const bool has_them = first_row_.value_or(0) == 0;
    return virtual_rows_->on_tokens(y, all.value(), has_them);
  });
}

void Embedding::set_form(const io::BlockForm& form) {
  TESSERA_ASSERT(!form_ && !first_row_ && token_rows_ == nullptr && virtual_rows_ == nullptr,
                 "a whole table without further rows takes a form once");
  make_coded(weight, form);
  form_ = form;
}

void Embedding::set_token_rows(std::vector<int64_t> ids) {
  TESSERA_ASSERT(token_rows_ == nullptr && !form_, "tokens of a table of values get rows once");
  token_rows_ = register_module(
      "token_adapter",
      std::make_shared<TokenRows>(std::move(ids), weight.size(0), weight.size(1), weight.scalar_type()));
}

void Embedding::set_virtual_rows(int64_t count) {
  TESSERA_ASSERT(virtual_rows_ == nullptr && !first_row_ && !form_,
                 "a whole table of values gets virtual rows once");
  virtual_rows_ = register_module(
      "prompt_adapter",
      std::make_shared<VirtualRows>(weight.size(0), count, weight.size(1), weight.scalar_type()));
}

at::Tensor Embedding::with_noise(const at::Tensor& y, const at::Tensor& input_ids) const {
  const at::Tensor noise = embedding_noise_here(y, noise_alpha_);
  if (first_row_) {
    const at::Tensor row = input_ids - *first_row_;
    noise.mul_(row.ge(0).logical_and(row.lt(weight.size(0))).unsqueeze(1));
  }
  return y + noise;
}

}  // namespace tessera::nn
