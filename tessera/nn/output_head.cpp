#include "tessera/nn/output_head.h"

#include <ATen/ATen.h>

#include "tessera/ops/linear.h"

namespace tessera::nn {

ops::Activation OutputHead::normed(const at::Tensor& x) const {
  const at::Tensor y = norm_->forward(x);
  return scale_ == 1.0 ? y : y * scale_;
}

at::Tensor OutputHead::loss(const at::Tensor& x, const at::Tensor& labels,
                            const ops::LossSources* sources) const {
  const ops::Activation hidden = parallel() == nullptr ? normed(x) : parallel()->input(normed(x));
  const at::Tensor weight = token_rows() ? token_rows()->on_table(weight_, tied_->part()) : weight_;
  ops::LossTerms terms = loss_terms_;
  terms.soft_cap = soft_cap_;
  return ops::linear_cross_entropy(hidden.value(), weight, labels, 0, part_ ? &*part_ : nullptr, sources,
                                   terms);
}

at::Tensor OutputHead::logits(const at::Tensor& x) const {
  return run(normed(x), [this](const ops::Activation& hidden) {
    at::Tensor y = ops::linear(hidden, weight_);
    if (token_rows() != nullptr) {
      y = token_rows()->on_logits(y, tied_->part(),
                                  [&](const at::Tensor& rows) { return ops::linear(hidden, rows); });
    }
    return soft_cap_ == 0.0 ? y : at::tanh(y / soft_cap_) * soft_cap_;
  });
}

std::vector<at::Tensor> OutputHead::used_parameters() const {
  std::vector<at::Tensor> parameters = norm_->parameters();
  parameters.push_back(weight_);
  if (token_rows() != nullptr) parameters.push_back(token_rows()->rows);
  return parameters;
}

}  // namespace tessera::nn
