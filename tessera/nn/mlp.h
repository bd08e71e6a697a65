// The gated MLP of Llama and its kin.
#pragma once

#include <memory>

#include "tessera/nn/linear.h"

namespace tessera::nn {

// down_proj(silu(gate_proj(x)) * up_proj(x)).
class MLP : public Layer {
 public:
  MLP(int64_t hidden_size, int64_t intermediate_size, bool bias, at::ScalarType dtype);

  // x: [tokens, hidden_size] -> [tokens, hidden_size]
  at::Tensor forward(const ops::Activation& x);

  // From now on the outputs of gate_proj and up_proj, the largest tensors of a block, are not kept for the
  // backward pass but computed again there, from what is kept of x anyway. The same to the last bit, if the
  // backward runs in the mode (train or eval) and the nn::RandomScope of the forward.
  void recompute_hidden() { recomputes_hidden_ = true; }

  std::shared_ptr<Linear> gate_proj, up_proj, down_proj;

 private:
  at::Tensor run_gated(const ops::Activation& x) const;

  bool recomputes_hidden_ = false;
};

}  // namespace tessera::nn
