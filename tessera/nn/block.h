// The interface of a transformer's blocks.
#pragma once

#include <torch/nn/module.h>

#include "tessera/nn/sequence.h"

namespace tessera::nn {

// The unit of sharding, of activation checkpointing and of a pipeline's stages. Run a block through
// nn::call(), so that their hooks apply.
class Block : public torch::nn::Module {
 public:
  // x: [tokens, hidden_size] -> [tokens, hidden_size]. The result depends on the arguments and the parameters
  // alone, since forward() may run again in the backward pass.
  virtual at::Tensor forward(const at::Tensor& x, const SequenceContext& context) = 0;

  // Returns the shape of the keys and values that this block adds to a cache; no heads if it adds none.
  virtual CachedHeads cached_heads() const = 0;
  // Makes the block recompute its largest activations in the backward instead of keeping them
  // (MLP::recompute_hidden).
  virtual void recompute_hidden() = 0;
};

}  // namespace tessera::nn
