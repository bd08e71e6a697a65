// The last station of a language model: the final norm, the output projection and the loss.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/nn/norm.h"
#include "tessera/ops/linear_cross_entropy.h"

namespace tessera::nn {

// Owns no parameter: the norm's and the projection's belong to modules of the model, the latter to the
// embedding where they are tied. A layout that is put in sees the normed hidden states as input and logits as
// output; set_part() is what it gives for the loss, which never holds all logits.
class OutputHead : public Layer {
 public:
  // weight: [vocabulary, hidden_size].
  OutputHead(std::shared_ptr<const Norm> norm, at::Tensor weight)
      : weight_(std::move(weight)), norm_(std::move(norm)) {}

  // x: [tokens, hidden_size], from the last block. The sum over the labelled positions
  // (ops::linear_cross_entropy).
  at::Tensor loss(const at::Tensor& x, const at::Tensor& labels,
                  const ops::LossSources* sources = nullptr) const;
  // [tokens, vocabulary]
  at::Tensor logits(const at::Tensor& x) const;

  // From now on the weight holds a part of the vocabulary.
  void set_part(ops::VocabularyPart part) { part_ = std::move(part); }

  // Of the loss (ops::linear_cross_entropy), in training and evaluation.
  void set_loss_terms(const ops::LossTerms& terms) { loss_terms_ = terms; }

  const at::Tensor& weight() const { return weight_; }
  // The norm's, and the weight.
  std::vector<at::Tensor> used_parameters() const;

 private:
  at::Tensor weight_;
  std::shared_ptr<const Norm> norm_;
  std::optional<ops::VocabularyPart> part_;
  ops::LossTerms loss_terms_;
};

}  // namespace tessera::nn
