// The head of a language model: the final norm, the output projection and the loss of the next tokens, or of
// the masked ones.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/nn/dropout.h"
#include "tessera/nn/embedding.h"
#include "tessera/nn/initial_value.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/norm.h"
#include "tessera/nn/task_head.h"
#include "tessera/ops/mlp_activation.h"

namespace tessera::nn {

// The bias of a projection whose weight is the embedding's. A parallel layout cuts it like that weight.
class HeadBias : public Layer, public HasInitialValues {
 public:
  HeadBias(int64_t vocabulary, at::ScalarType dtype);
  InitialValue initial_value(std::string_view) const override { return InitialValue::zeros(); }

  at::Tensor bias;  // [vocabulary]
};

// The layers that a masked language model has between the final norm and the projection, in their order. They
// treat tokens one by one.
struct HeadTransform {
  std::shared_ptr<Linear> dense;  // null without these layers
  ops::Nonlinearity activation = ops::Nonlinearity::Gelu;
  std::shared_ptr<const Norm> norm;
};

// Owns no parameter: those of the norm and the projection belong to modules of the model; the norm may be
// null. A tied projection's weight is the embedding's, and so are its Embedding::token_rows(). The loss never
// holds all logits; for it a cut vocabulary is described by set_part().
class OutputHead : public TaskHead {
 public:
  OutputHead(std::shared_ptr<const Norm> norm, std::shared_ptr<const Linear> projection)
      : norm_(std::move(norm)), projection_(std::move(projection)) {}

  // For a projection that has the embedding's weight.
  OutputHead(std::shared_ptr<const Norm> norm, std::shared_ptr<const Embedding> tied)
      : norm_(std::move(norm)), tied_(std::move(tied)) {}

  // Returns ops::linear_cross_entropy() over batch.labels.
  at::Tensor loss(const at::Tensor& x, const TokenBatch& batch) const override;
  at::Tensor logits(const at::Tensor& x) const override;
  at::Tensor normed(const at::Tensor& x) const override { return norm_ == nullptr ? x : norm_->forward(x); }

  // Adds the projection's bias, [vocabulary], to the logits.
  void set_bias(at::Tensor bias) { bias_ = std::move(bias); }

  // Drops elements of the normed tokens, in training; null for none.
  void set_dropout(std::shared_ptr<const Dropout> dropout) { dropout_ = std::move(dropout); }

  void set_transform(HeadTransform transform) { transform_ = std::move(transform); }
  const HeadTransform& transform() const { return transform_; }

  // Logits are those of scale x, and then capped (ops::LossTerms::soft_cap).
  void set_logits(double scale, double soft_cap) {
    scale_ = scale;
    soft_cap_ = soft_cap;
  }

  // Declares that the weight, and the bias, hold only the rows of this part of the vocabulary.
  void set_part(ops::VocabularyPart part) { part_ = std::move(part); }

  const at::Tensor& weight() const override { return tied_ == nullptr ? projection_->weight : tied_->weight; }
  at::ScalarType dtype() const override { return tied_ == nullptr ? projection_->dtype() : tied_->dtype(); }
  bool backward_reads_weight() const override { return false; }
  // Returns the norm's parameters, those of the transform, the weight, the bias, and the rows that tokens
  // have of their own.
  std::vector<at::Tensor> used_parameters() const override;

 private:
  ops::Weight operand() const { return tied_ == nullptr ? projection_->operand() : tied_->operand(); }

  at::Tensor bias_;  // undefined without one
  // Returns null if no token has a row of its own.
  const TokenRows* token_rows() const { return tied_ == nullptr ? nullptr : tied_->token_rows().get(); }

  // Returns what the product takes.
  ops::Activation input(const at::Tensor& x) const;

  std::shared_ptr<const Norm> norm_;  // null without one
  std::shared_ptr<const Dropout> dropout_;
  HeadTransform transform_;
  std::shared_ptr<const Linear> projection_;  // null for a tied one
  std::shared_ptr<const Embedding> tied_;     // null for a projection with a weight of its own
  std::optional<ops::VocabularyPart> part_;
  double scale_ = 1.0, soft_cap_ = 0.0;
};

}  // namespace tessera::nn
