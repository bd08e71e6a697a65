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
  // Names of the projections in the family's files. An empty `gate` makes an MLP without a gate.
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
};

// Computes down(f(gate(x)) * up(x)), or down(f(up(x))) without a gate. Its children are the projections.
class MLP : public Layer {
 public:
  MLP(const MLPOptions& options, at::ScalarType dtype);

  // x: [tokens, hidden_size] -> [tokens, hidden_size].
  at::Tensor forward(const ops::Activation& x);

  // Stops keeping the outputs of gate_proj and up_proj, the largest tensors of a block, for the backward
  // pass: they are recomputed there, from what is kept of x anyway. The result is the same to the last bit if
  // the backward runs in the mode (train or eval) of the forward.
  void recompute_hidden() { recomputes_hidden_ = true; }

  bool recomputes_hidden() const { return recomputes_hidden_; }
  ops::Nonlinearity activation() const { return activation_; }

  std::shared_ptr<Linear> gate_proj, up_proj, down_proj;  // gate_proj is null without a gate

 private:
  at::Tensor run_hidden(const ops::Activation& x) const;

  ops::Nonlinearity activation_;
  bool recomputes_hidden_ = false;
};

}  // namespace tessera::nn
