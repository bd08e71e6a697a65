// The gated MLP of Llama and its kin.
#pragma once

#include <memory>

#include <torch/nn/module.h>

#include "tessera/nn/linear.h"

namespace tessera::nn {

// down_proj(silu(gate_proj(x)) * up_proj(x)).
class MLP : public torch::nn::Module {
 public:
  MLP(int64_t hidden_size, int64_t intermediate_size, bool bias, at::ScalarType dtype);

  // x: [tokens, hidden_size] -> [tokens, hidden_size]
  at::Tensor forward(const ops::Activation& x);

  std::shared_ptr<Linear> gate_proj, up_proj, down_proj;
};

}  // namespace tessera::nn
