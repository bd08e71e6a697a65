#include "tessera/nn/output_head.h"

#include <ATen/ATen.h>

#include "tessera/ops/linear.h"

namespace tessera::nn {

HeadBias::HeadBias(int64_t vocabulary, at::ScalarType dtype) {
  bias =
      register_parameter("bias", at::empty({vocabulary}, at::TensorOptions().dtype(dtype).device(at::kMeta)));
}

ops::Activation OutputHead::input(const at::Tensor& x) const {
  at::Tensor y = normed(x);
  if (dropout_ != nullptr) y = dropout_->forward(y);
  if (transform_.dense != nullptr) {
    y = ops::activate_mlp(transform_.activation, {transform_.dense->forward(y), {}});
    y = transform_.norm->forward(y);
  }
  return scale_ == 1.0 ? y : y * scale_;
}

at::Tensor OutputHead::loss(const at::Tensor& x, const TokenBatch& batch) const {
  const ops::Activation hidden = parallel() == nullptr ? input(x) : parallel()->input(input(x));
  // A coded weight is expanded as a whole: only evaluation has one here.
  const ops::Weight table = operand();
  at::Tensor weight = table.is_coded() ? table.rows(0, table.size(0), dtype()) : table.values();
  if (token_rows() != nullptr) weight = token_rows()->on_table(weight, tied_->part());
  ops::LossTerms terms = loss_terms();
  terms.soft_cap = soft_cap_;
  return ops::linear_cross_entropy(hidden.value(), weight, batch.labels, 0, part_ ? &*part_ : nullptr,
                                   batch.sources ? &*batch.sources : nullptr, terms, bias_);
}

at::Tensor OutputHead::logits(const at::Tensor& x) const {
  return run(input(x), [this](const ops::Activation& hidden) {
    at::Tensor y = ops::linear(hidden, operand(), bias_.defined() ? std::optional(bias_) : std::nullopt);
    if (token_rows() != nullptr) {
      y = token_rows()->on_logits(y, tied_->part(),
                                  [&](const at::Tensor& rows) { return ops::linear(hidden, rows); });
    }
    return soft_cap_ == 0.0 ? y : at::tanh(y / soft_cap_) * soft_cap_;
  });
}

std::vector<at::Tensor> OutputHead::used_parameters() const {
  std::vector<at::Tensor> parameters;
  if (norm_ != nullptr) parameters = norm_->parameters();
  if (transform_.dense != nullptr) {
    for (const torch::nn::Module* layer : {static_cast<const torch::nn::Module*>(transform_.dense.get()),
                                           static_cast<const torch::nn::Module*>(transform_.norm.get())}) {
      for (const at::Tensor& parameter : layer->parameters()) parameters.push_back(parameter);
    }
  }
  parameters.push_back(weight());
  if (bias_.defined()) parameters.push_back(bias_);
  if (token_rows() != nullptr) parameters.push_back(token_rows()->rows);
  return parameters;
}

}  // namespace tessera::nn
