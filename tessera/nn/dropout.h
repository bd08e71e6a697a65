// Dropout of hidden states.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "tessera/nn/layer.h"
#include "tessera/nn/random_scope.h"

namespace tessera::nn {

// A place in a model where its config.json asks for dropout. It acts in training and inside a RandomScope,
// which only a training step opens.
class Dropout : public Layer {
 public:
  // `site` names the place in the model: its masks derive from that. Throws Error(Config, "DROPOUT-RANGE")
  // when it acts if the probability is not in [0, 1).
  Dropout(double probability, const std::string& site);

  // Returns x, [tokens, hidden], where each element is 0 with the probability p, and otherwise multiplied by
  // 1 / (1 - p). Masks are those of dropout_mask_here(). A LayerParallel's output() takes the mask of all
  // tokens and returns that of the rows of x.
  at::Tensor forward(const at::Tensor& x) const;
  // Does so for all tokens, of which x has a part of each row.
  at::Tensor forward(const at::Tensor& x, const RowPart& part) const;

  // Tells whether forward() would draw a mask.
  bool drops() const;

 private:
  double probability_;
  uint64_t stream_;
};

// Gives `parent` a child of this name that drops with the probability at `site`; returns null, and adds none,
// for a probability of 0.
std::shared_ptr<Dropout> add_dropout(torch::nn::Module& parent, const std::string& name, double probability,
                                     const std::string& site);

}  // namespace tessera::nn
