// The nonlinearity of an MLP as one autograd function.
#pragma once

#include <functional>

#include "tessera/ops/activation.h"

namespace tessera::ops {

enum class Nonlinearity {
  Silu,      // z / (1 + exp(-z)); gated, this is SwiGLU
  Gelu,      // z (1 + erf(z / sqrt 2)) / 2
  GeluTanh,  // z (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3))) / 2; "gelu_new", "gelu_pytorch_tanh"
};

// What the projections of an MLP give. Equal shapes and types: float32, float64 or bfloat16 (computed in
// float32).
struct MlpInputs {
  at::Tensor gate;  // goes through the nonlinearity
  at::Tensor up;    // multiplies the result; undefined where an MLP is not gated
};

// f(gate) * up, or f(gate). Saves its inputs alone.
at::Tensor activate_mlp(Nonlinearity f, const MlpInputs& inputs);

// The same for a product to read: its backward makes the value again from the inputs, which are kept anyway;
// or, with `again`, are made by it in the backward instead: it must return the same values, without gradient.
Activation mlp_activation(Nonlinearity f, const MlpInputs& inputs, std::function<MlpInputs()> again = {});

}  // namespace tessera::ops
