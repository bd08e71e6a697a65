#include "tessera/nn/output_head.h"

#include "tessera/ops/linear.h"

namespace tessera::nn {

at::Tensor OutputHead::loss(const at::Tensor& x, const at::Tensor& labels,
                            const ops::LossSources* sources) const {
  const ops::Activation normed = norm_->forward(x);
  const ops::Activation hidden = parallel() == nullptr ? normed : parallel()->input(normed);
  const at::Tensor weight = token_rows() ? token_rows()->on_table(weight_, tied_->part()) : weight_;
  return ops::linear_cross_entropy(hidden.value(), weight, labels, 0, part_ ? &*part_ : nullptr, sources,
                                   loss_terms_);
}

at::Tensor OutputHead::logits(const at::Tensor& x) const {
  return run(norm_->forward(x), [this](const ops::Activation& hidden) {
    const at::Tensor y = ops::linear(hidden, weight_);
    if (token_rows() == nullptr) return y;
    return token_rows()->on_logits(y, tied_->part(),
                                   [&](const at::Tensor& rows) { return ops::linear(hidden, rows); });
  });
}

std::vector<at::Tensor> OutputHead::used_parameters() const {
  std::vector<at::Tensor> parameters = norm_->parameters();
  parameters.push_back(weight_);
  if (token_rows() != nullptr) parameters.push_back(token_rows()->rows);
  return parameters;
}

}  // namespace tessera::nn
