// The last part of a language model: the final norm, the output projection and the loss.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/nn/embedding.h"
#include "tessera/nn/norm.h"
#include "tessera/ops/linear_cross_entropy.h"

namespace tessera::nn {

// Owns no parameter: those of the norm and the projection belong to modules of the model; a tied projection's
// weight is the embedding's, and so are its Embedding::token_rows(). A LayerParallel gets the normed hidden
// states as input and logits as output. The loss never holds all logits; for it a cut vocabulary is described
// by set_part().
class OutputHead : public Layer {
 public:
  // weight: [vocabulary, hidden_size].
  OutputHead(std::shared_ptr<const Norm> norm, at::Tensor weight)
      : weight_(std::move(weight)), norm_(std::move(norm)) {}

  // For a projection that has the embedding's weight.
  OutputHead(std::shared_ptr<const Norm> norm, std::shared_ptr<const Embedding> tied)
      : weight_(tied->weight), norm_(std::move(norm)), tied_(std::move(tied)) {}

  // x: [tokens, hidden_size], from the last block; labels: [tokens] int64 on the host. Returns the sum over
  // the labelled positions, a scalar (ops::linear_cross_entropy).
  at::Tensor loss(const at::Tensor& x, const at::Tensor& labels,
                  const ops::LossSources* sources = nullptr) const;
  // x: [tokens, hidden_size] -> [tokens, vocabulary].
  at::Tensor logits(const at::Tensor& x) const;

  // Logits are those of scale x, and then capped (ops::LossTerms::soft_cap).
  void set_logits(double scale, double soft_cap) {
    scale_ = scale;
    soft_cap_ = soft_cap;
  }

  // Declares that the weight holds only the rows of this part of the vocabulary.
  void set_part(ops::VocabularyPart part) { part_ = std::move(part); }

  // Sets the additional terms of the loss (ops::linear_cross_entropy), in training and evaluation.
  void set_loss_terms(const ops::LossTerms& terms) { loss_terms_ = terms; }

  const at::Tensor& weight() const { return weight_; }
  // Returns the norm's parameters, the weight, and the rows that tokens have of their own.
  std::vector<at::Tensor> used_parameters() const;

 private:
  at::Tensor weight_;
  // Returns null if no token has a row of its own.
  const TokenRows* token_rows() const { return tied_ == nullptr ? nullptr : tied_->token_rows().get(); }

  ops::Activation normed(const at::Tensor& x) const;

  std::shared_ptr<const Norm> norm_;
  std::shared_ptr<const Embedding> tied_;  // null for a projection with a weight of its own
  std::optional<ops::VocabularyPart> part_;
  double scale_ = 1.0, soft_cap_ = 0.0;
  ops::LossTerms loss_terms_;
};

}  // namespace tessera::nn
