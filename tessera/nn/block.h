// The face of a transformer's layers.
#pragma once

#include <torch/nn/module.h>

#include "tessera/nn/sequence.h"

namespace tessera::nn {

// The unit of sharding, of recomputation and of a pipeline's stages. Run it through nn::call(), so that they
// reach it.
class Block : public torch::nn::Module {
 public:
  // x: [tokens, hidden_size] -> [tokens, hidden_size]. A function of its arguments and parameters alone: it
  // may run again in the backward pass.
  virtual at::Tensor forward(const at::Tensor& x, const SequenceContext& context) = 0;

  // What it adds to a cache.
  virtual CachedHeads cached_heads() const = 0;
  // Computes again in the backward, in place of keeping them, the largest of its activations (MLP::
  // recompute_hidden).
  virtual void recompute_hidden() = 0;
};

}  // namespace tessera::nn
