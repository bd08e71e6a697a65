// The gate of Llama's MLP as one autograd function.
#pragma once

#include <functional>

#include "tessera/ops/activation.h"

namespace tessera::ops {

// silu(gate) * up, with silu(z) = z / (1 + exp(-z)). Equal shapes and types: float32, float64 or bfloat16
// (computed in float32). Saves its two inputs alone.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

struct SwigluInputs {
  at::Tensor gate, up;
};

// The same for a product to read: its backward makes the value again from gate and up, which are kept anyway;
// or, with `again`, are made by it in the backward instead: it must return the same values, without gradient.
Activation swiglu_activation(const at::Tensor& gate, const at::Tensor& up,
                             std::function<SwigluInputs()> again = {});

}  // namespace tessera::ops
