// Dropout of attention's probabilities.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "tessera/ops/attention_formula.h"

namespace tessera::nn {

// Gives attention the dropout that a model's config.json asks for. It acts in training and inside a
// RandomScope, which only a training step opens.
class AttentionDropout : public torch::nn::Module {
 public:
  // `num_heads` are the query heads of the layer on all ranks. `site` names the layer in the model: its draws
  // derive from that.
  AttentionDropout(double probability, int64_t num_heads, const std::string& site);

  // Returns the dropout of these queries, [tokens, heads, ...], of which head 0 is head `first_head` of the
  // layer; no dropout where it does not act. The tokens are those of the RandomScope. Draws are those of
  // draws_here().
  ops::AttentionDropout of(const at::Tensor& q, int64_t first_head) const;

  // Tells whether of() would draw.
  bool drops() const;

 private:
  double probability_;
  int64_t num_heads_;
  uint64_t stream_;
};

// Gives `parent` such a child for `site`; returns null, and adds none, for a probability of 0.
std::shared_ptr<AttentionDropout> add_attention_dropout(torch::nn::Module& parent, double probability,
                                                        int64_t num_heads, const std::string& site);

}  // namespace tessera::nn
