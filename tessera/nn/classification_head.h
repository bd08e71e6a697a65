// The head of a classifier: the layers behind the hidden state of the token that it reads, and the loss.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tessera/core/classification.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/norm.h"
#include "tessera/nn/pair_loss.h"
#include "tessera/nn/task_head.h"

namespace tessera::nn {

// The layers in their order. They belong to modules of the model; all but the last may be absent.
struct ClassifierLayers {
  std::shared_ptr<const Norm> norm;  // over all tokens: the final norm of the model
  std::shared_ptr<Linear> dense;
  std::function<at::Tensor(const at::Tensor&)> activation;
  std::shared_ptr<const Norm> dense_norm;
  std::shared_ptr<Linear> classifier;
  // Probabilities of dropout, in training, of what `dense` and `classifier` read.
  double input_dropout = 0.0, dropout = 0.0;
};

// The loss of a labelled position is, as in Transformers, the cross entropy of its class (SingleLabel; with
// the terms of ops::LossTerms but for the cap), or the mean over the labels of the binary cross entropy of
// each (MultiLabel), or of the squared error (Regression). Class statistics count the class of the largest
// logit, the labels whose logit is above 0, or the logits.
//
// The ranks of tensor parallelism hold the layers whole, and all compute the same.
class ClassificationHead : public TaskHead {
 public:
  ClassificationHead(ClassifierLayers layers, Classification classification)
      : layers_(std::move(layers)), classification_(std::move(classification)) {}

  // Throws Error(Data, "LABEL-RANGE") for a class that there is not.
  at::Tensor loss(const at::Tensor& x, const TokenBatch& batch) const override;
  at::Tensor logits(const at::Tensor& x) const override;
  at::Tensor normed(const at::Tensor& x) const override {
    return layers_.norm == nullptr ? x : layers_.norm->forward(x);
  }

  const at::Tensor& weight() const override { return layers_.classifier->weight; }
  at::ScalarType dtype() const override { return weight().scalar_type(); }
  bool backward_reads_weight() const override { return true; }
  std::vector<at::Tensor> used_parameters() const override;

  int64_t num_statistics() const override;
  NamedMetrics metrics(std::span<const double> statistics) const override;
  void set_token_sum(ops::ChangeInPlace sum) override { token_sum_ = std::move(sum); }

  // Makes the head's one number a reward: labelled positions are then those of pairs of texts, and the loss
  // is that of pair_losses(), whose margins are the targets.
  void learn_from_pairs(const PairTerms& terms) { pairs_ = terms; }

  const Classification& classification() const { return classification_; }

 private:
  // Returns what classify() takes.
  at::Tensor input(const at::Tensor& x) const;
  at::Tensor classify(const at::Tensor& x) const;
  // Returns x with its elements dropped with probability p, in training and inside a RandomScope.
  at::Tensor dropped(const at::Tensor& x, double p, const char* site) const;
  // Returns the loss of each row, [rows], of logits and targets, [rows, numbers].
  at::Tensor losses(const at::Tensor& logits, const at::Tensor& targets) const;

  ClassifierLayers layers_;
  Classification classification_;
  std::optional<PairTerms> pairs_;
  ops::ChangeInPlace token_sum_;
};

}  // namespace tessera::nn
