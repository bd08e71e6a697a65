// An activation with parameters that are trained.
#pragma once

#include <ATen/core/Tensor.h>

#include "tessera/nn/initial_value.h"
#include "tessera/nn/layer.h"

namespace tessera::nn {

// Computes ops::xielu() with p = softplus(alpha_p) and n = beta + softplus(alpha_n), as Apertus does. alpha_p
// and alpha_n are trained; beta and eps are frozen, and files hold them without a dim. All are made on the
// meta device.
class XIELU : public Layer, public HasInitialValues {
 public:
  explicit XIELU(at::ScalarType dtype);

  InitialValue initial_value(std::string_view name) const override;

  // x: [tokens, size] -> [tokens, size].
  at::Tensor forward(const at::Tensor& x) const;

  at::Tensor alpha_p, alpha_n, beta, eps;  // [1]
};

}  // namespace tessera::nn
