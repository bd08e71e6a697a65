// The nonlinearity of an MLP as one autograd function.
#pragma once

#include <functional>

#include "tessera/ops/activation.h"

namespace tessera::ops {

enum class Nonlinearity {
  Silu,      // z / (1 + exp(-z)); gated, this is SwiGLU
  Gelu,      // z (1 + erf(z / sqrt 2)) / 2
  GeluTanh,  // z (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3))) / 2; "gelu_new", "gelu_pytorch_tanh"
  Relu,      // max(z, 0)
  Relu2,     // max(z, 0)^2
};

// The results of an MLP's projections, of equal shapes and types: float32, float64, or bfloat16, which is
// computed in float32.
struct MlpInputs {
  at::Tensor gate;  // goes through the nonlinearity f
  at::Tensor up;    // multiplies f's result; undefined if the MLP is not gated
};

// Returns f(gate) * up, or f(gate) if there is no `up`, in the shape and type of `gate`. Saves its inputs
// alone.
at::Tensor activate_mlp(Nonlinearity f, const MlpInputs& inputs);

// Returns activate_mlp() for products to read, which do not keep it: their backward makes the value again
// from the inputs, which this op keeps anyway. With `again`, the inputs are not kept either, but made by
// `again` in the backward: it must return the same values, without gradient.
Activation mlp_activation(Nonlinearity f, const MlpInputs& inputs, std::function<MlpInputs()> again = {});

}  // namespace tessera::ops
