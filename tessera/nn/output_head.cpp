#include "tessera/nn/output_head.h"

#include "tessera/ops/linear.h"

namespace tessera::nn {

at::Tensor OutputHead::loss(const at::Tensor& x, const at::Tensor& labels,
                            const ops::LossSources* sources) const {
  const ops::Activation normed = norm_->forward(x);
  const ops::Activation hidden = parallel() == nullptr ? normed : parallel()->input(normed);
  return ops::linear_cross_entropy(hidden.value(), weight_, labels, 0, part_ ? &*part_ : nullptr, sources,
                                   loss_terms_);
}

at::Tensor OutputHead::logits(const at::Tensor& x) const {
  return run(norm_->forward(x),
             [this](const ops::Activation& hidden) { return ops::linear(hidden, weight_); });
}

std::vector<at::Tensor> OutputHead::used_parameters() const {
  std::vector<at::Tensor> parameters = norm_->parameters();
  parameters.push_back(weight_);
  return parameters;
}

}  // namespace tessera::nn
