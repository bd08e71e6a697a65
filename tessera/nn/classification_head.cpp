#include "tessera/nn/classification_head.h"

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/rng.h"
#include "tessera/device/device_copy.h"
#include "tessera/nn/count_entities.h"
#include "tessera/nn/random_scope.h"

namespace tessera::nn {
namespace {

// The labelled positions of a batch, and what is to be told there.
struct Labelled {
  at::Tensor positions;  // [labels] int64, on the host
  at::Tensor targets;    // [labels, numbers] float64, on the host
};

// `width`: how many numbers a target has. A batch without a row may come without targets.
Labelled labelled_of(const TokenBatch& batch, int64_t width) {
  const at::Tensor positions = batch.labels.ne(kIgnoreLabel).nonzero().squeeze(1);
  const at::Tensor labels = batch.labels.index_select(0, positions);
  return {positions, batch.targets.defined() ? batch.targets.index_select(0, labels)
                                             : labels.to(at::kDouble).unsqueeze(1).expand({-1, width})};
}

void check_classes(const at::Tensor& targets, int64_t count) {
  if (targets.numel() == 0) return;
  const auto [low, high] = at::aminmax(targets);
  if (low.item<double>() >= 0.0 && high.item<double>() < static_cast<double>(count)) return;
  throw Error(ErrorKind::Data, "LABEL-RANGE", "a class that the model does not have")
      .got(std::to_string(
          static_cast<int64_t>(low.item<double>() < 0.0 ? low.item<double>() : high.item<double>())))
      .need("0 to " + std::to_string(count - 1));
}

// Adds how often each index below sums.size(0) occurs in `indices`.
void count_into(const at::Tensor& sums, const at::Tensor& indices) {
  sums.index_add_(0, indices, at::ones_like(indices, sums.options()));
}

void add_statistics(const at::Tensor& sums, const Classification& classification, const at::Tensor& logits,
                    const at::Tensor& targets) {
  const at::NoGradGuard no_grad;
  const int64_t labels = classification.num_labels();
  if (classification.has_one_class()) {
    return count_into(sums, targets.select(1, 0).to(at::kLong) * labels + logits.argmax(1));
  }
  const at::Tensor p = logits.to(at::kDouble), t = targets.to(at::kDouble);
  if (classification.problem == ProblemType::Regression) {
    const at::Tensor error = p - t;
    const at::Tensor moments =
        at::stack({at::ones_like(p), p, t, p * p, t * t, p * t, error * error}, 2).sum(0);
    sums.add_(moments.flatten());
    return;
  }
  const at::Tensor chosen = p.gt(0.0), is = t.gt(0.5);
  const at::Tensor decisions =
      at::stack({chosen.bitwise_and(is), chosen.bitwise_and(is.bitwise_not()),
                 chosen.bitwise_not().bitwise_and(is), chosen.bitwise_or(is).bitwise_not()},
                2);
  sums.narrow(0, 0, 4 * labels).add_(decisions.to(at::kDouble).sum(0).flatten());
  sums.narrow(0, 4 * labels, 1).add_(chosen.eq(is).all(1).to(at::kDouble).sum());
}

}  // namespace

at::Tensor ClassificationHead::input(const at::Tensor& x) const {
  return parallel() == nullptr ? normed(x) : parallel()->input(normed(x)).value();
}

at::Tensor ClassificationHead::dropped(const at::Tensor& x, double p, const char* site) const {
  if (p == 0.0 || !layers_.classifier->is_training() || RandomScope::current() == nullptr) return x;
  return x * dropout_mask_here(x, p, stream_of(site));
}

at::Tensor ClassificationHead::classify(const at::Tensor& x) const {
  at::Tensor y = dropped(x, layers_.input_dropout, "classifier.input");
  if (layers_.dense != nullptr) y = layers_.dense->forward(y);
  if (layers_.activation) y = layers_.activation(y);
  if (layers_.dense_norm != nullptr) y = layers_.dense_norm->forward(y);
  return layers_.classifier->forward(dropped(y, layers_.dropout, "classifier"));
}

at::Tensor ClassificationHead::logits(const at::Tensor& x) const { return classify(input(x)); }

at::Tensor ClassificationHead::losses(const at::Tensor& logits, const at::Tensor& targets) const {
  switch (classification_.problem) {
    case ProblemType::Regression: return (logits - targets).square().mean(1);
    case ProblemType::MultiLabel:
      return at::binary_cross_entropy_with_logits(logits, targets, {}, {}, at::Reduction::None).mean(1);
    case ProblemType::SingleLabel:
    case ProblemType::Tokens: break;
  }
  const at::Tensor all =
      at::cross_entropy_loss(logits, targets.select(1, 0).to(at::kLong), {}, at::Reduction::None,
                             kIgnoreLabel, loss_terms().label_smoothing);
  if (loss_terms().z_loss_coef == 0.0) return all;
  return all + loss_terms().z_loss_coef * at::logsumexp(logits, 1).square();
}

at::Tensor ClassificationHead::loss(const at::Tensor& x, const TokenBatch& batch) const {
  const Labelled labelled = labelled_of(batch, classification_.target_width());
  if (classification_.has_one_class()) check_classes(labelled.targets, classification_.num_labels());
  const at::Tensor whole = input(x);
  const at::Tensor read = whole.index_select(0, copy_to(labelled.positions, x.device()));
  // The dropout masks of some rows are those of their tokens.
  std::optional<RandomScope> scope;
  if (const RandomPlace* const place = RandomScope::current(); place != nullptr)
    scope.emplace(place_of_rows(*place, labelled.positions, whole.size(0)));
  const at::Tensor made = classify(read);
  const at::Tensor exact = made.to(made.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const at::Tensor targets = copy_to(labelled.targets, x.device()).to(exact.scalar_type());
  at::Tensor all;
  if (pairs_) {
    const at::Tensor numbers = copy_to(batch.labels.index_select(0, labelled.positions), x.device());
    const at::Tensor margins =
        batch.targets.defined() ? copy_to(batch.targets, x.device()).select(1, 0) : targets.select(1, 0);
    all = pair_losses(exact.select(1, 0), numbers, margins.to(exact.scalar_type()), *pairs_, token_sum_,
                      batch.statistics);
  } else {
    all = losses(exact, targets);
  }
  if (batch.statistics.defined() && !pairs_) {
    if (classification_.has_entities()) {
      count_entities(classification_, batch, labelled.positions, targets.select(1, 0).to(at::kLong),
                     exact.detach().argmax(1), token_sum_);
    } else {
      add_statistics(batch.statistics, classification_, exact, targets);
    }
  }
  if (batch.sources) {
    const at::Tensor sources = batch.sources->of_token.index_select(0, labelled.positions);
    batch.sources->losses.index_add_(0, copy_to(sources, x.device()), all.detach().to(at::kDouble));
  }
  return all.sum();
}

int64_t ClassificationHead::num_statistics() const {
  return pairs_ ? kPairStatistics : num_class_statistics(classification_);
}

NamedMetrics ClassificationHead::metrics(std::span<const double> statistics) const {
  return pairs_ ? pair_metrics(statistics) : class_metrics(classification_, statistics);
}

std::vector<at::Tensor> ClassificationHead::used_parameters() const {
  std::vector<at::Tensor> parameters;
  const auto add = [&](const torch::nn::Module* module) {
    if (module == nullptr) return;
    for (const at::Tensor& parameter : module->parameters()) parameters.push_back(parameter);
  };
  add(layers_.norm.get());
  add(layers_.dense.get());
  add(layers_.dense_norm.get());
  add(layers_.classifier.get());
  return parameters;
}

}  // namespace tessera::nn
