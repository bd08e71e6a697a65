#include "tessera/nn/xielu.h"

#include <cmath>

#include <ATen/ATen.h>

#include "tessera/ops/support.h"
#include "tessera/ops/xielu.h"

namespace tessera::nn {

XIELU::XIELU(at::ScalarType dtype) {
  const auto add = [&](const char* name, bool is_trained) {
    return register_parameter(name, at::empty({1}, at::TensorOptions().dtype(dtype).device(at::kMeta)),
                              is_trained);
  };
  alpha_p = add("alpha_p", true);
  alpha_n = add("alpha_n", true);
  beta = add("beta", false);
  eps = add("eps", false);
}

InitialValue XIELU::initial_value(std::string_view name) const {
  // p and n are 0.8 at first.
  if (name == "alpha_p") return InitialValue::constant(std::log(std::expm1(0.8)));
  if (name == "alpha_n") return InitialValue::constant(std::log(std::expm1(0.3)));
  return InitialValue::constant(name == "beta" ? 0.5 : -1e-6);
}

at::Tensor XIELU::forward(const at::Tensor& x) const {
  const auto exact = ops::compute_type(x.scalar_type());
  const at::Tensor slope = beta.to(exact);
  return ops::xielu(x, {.p = at::softplus(alpha_p.to(exact)),
                        .n = at::softplus(alpha_n.to(exact)) + slope,
                        .beta = slope,
                        .eps = eps.to(exact)});
}

}  // namespace tessera::nn
