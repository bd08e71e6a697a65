// The last part of a model, which turns the hidden states of the last block into outputs and computes their
// loss.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "tessera/core/classification.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/sequence.h"
#include "tessera/ops/linear_cross_entropy.h"
#include "tessera/ops/pass_through.h"

namespace tessera::nn {

// A task is a kind of head. A LayerParallel gets the normed hidden states as input and logits as output.
class TaskHead : public Layer {
 public:
  // x: [tokens, hidden_size], from the last block. Returns the sum of the losses of the labelled positions of
  // `batch`, a scalar (float32, or float64 for float64 input), and adds to what the batch collects.
  virtual at::Tensor loss(const at::Tensor& x, const TokenBatch& batch) const = 0;
  // x: [tokens, hidden_size] -> [tokens, logits of a token].
  virtual at::Tensor logits(const at::Tensor& x) const = 0;

  // Returns the matrix of the last product, [logits of a token, hidden_size], or the bytes of its blocks.
  virtual const at::Tensor& weight() const = 0;
  // Returns the type of its values.
  virtual at::ScalarType dtype() const = 0;
  // Tells whether the backward of loss() reads the values of weight().
  virtual bool backward_reads_weight() const = 0;
  // Returns the parameters that the head computes with, its norm's too.
  virtual std::vector<at::Tensor> used_parameters() const = 0;
  // Returns x behind the final norm of the model; x itself, if it has none.
  virtual at::Tensor normed(const at::Tensor& x) const = 0;

  // Returns how many sums the head adds to TokenBatch::statistics, and the metrics that follow from them.
  virtual int64_t num_statistics() const { return 0; }
  virtual NamedMetrics metrics(std::span<const double> statistics) const {
    (void)statistics;
    return {};
  }
  // Tells the head that other ranks hold the remaining tokens of its micro-batches (context parallelism):
  // `sum` sums a tensor over these ranks, in place. A head that works on each token alone does not need it.
  virtual void set_token_sum(ops::ChangeInPlace sum) { (void)sum; }

  // Sets the additional terms of the loss (ops::linear_cross_entropy), in training and evaluation.
  void set_loss_terms(const ops::LossTerms& terms) { loss_terms_ = terms; }

 protected:
  const ops::LossTerms& loss_terms() const { return loss_terms_; }

 private:
  ops::LossTerms loss_terms_;
};

}  // namespace tessera::nn
