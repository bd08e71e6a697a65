// The MLP of a transformer block.
#pragma once

#include <memory>
#include <string>

#include "tessera/nn/linear.h"
#include "tessera/ops/mlp_activation.h"

namespace tessera::nn {

struct MLPOptions {
  int64_t hidden_size = 0, intermediate_size = 0;
  bool bias = false;
  ops::Nonlinearity activation = ops::Nonlinearity::Silu;
  // Of the projections, as the family's files name them; an MLP without a gate has no name for it.
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
};

// down(f(gate(x)) * up(x)), or down(f(up(x))) without a gate. Children: the projections.
class MLP : public Layer {
 public:
  MLP(const MLPOptions& options, at::ScalarType dtype);

  // x: [tokens, hidden_size] -> [tokens, hidden_size]
  at::Tensor forward(const ops::Activation& x);

  // From now on the outputs of the projections into the MLP, the largest tensors of a block, are not kept for
  // the backward pass but computed again there, from what is kept of x anyway. The same to the last bit, if
  // the backward runs in the mode (train or eval) of the forward.
  void recompute_hidden() { recomputes_hidden_ = true; }

  bool recomputes_hidden() const { return recomputes_hidden_; }
  ops::Nonlinearity activation() const { return activation_; }

  std::shared_ptr<Linear> gate_proj, up_proj, down_proj;  // gate_proj: null without a gate

 private:
  at::Tensor run_hidden(const ops::Activation& x) const;

  ops::Nonlinearity activation_;
  bool recomputes_hidden_ = false;
};

}  // namespace tessera::nn
