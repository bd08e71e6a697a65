#include "tessera/ops/xielu.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/trace.h"
#include "tessera/ops/saved_activation.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kXielu = "xielu";
// Returns exp(min(x, eps)) - 1 - x, which n multiplies.
at::Tensor xielu_bend(const at::Tensor& x, const at::Tensor& eps) {
  return at::expm1(at::minimum(x, eps)).sub_(x);
}

at::Tensor xielu_forward(const at::Tensor& x_in, const XieluNumbers& numbers) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor x = x_in.to(compute_type(x_in.scalar_type()));
  const at::Tensor bent =
      at::where(x.gt(0), x.square().mul_(numbers.p), xielu_bend(x, numbers.eps).mul_(numbers.n));
  return bent.add_(x * numbers.beta).to(x_in.scalar_type());
}

struct XieluFunction : torch::autograd::Function<XieluFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& p,
                            const at::Tensor& n, const at::Tensor& beta, const at::Tensor& eps) {
    save_activations(*ctx, {x}, {p, n, beta, eps});
    return xielu_forward(x, {p, n, beta, eps});
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward(kXielu);
    const auto saved = take_activations(*ctx);
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto type = saved[0].scalar_type();
    const XieluNumbers numbers{saved[1], saved[2], saved[3], saved[4]};
    const at::Tensor x = saved[0].to(compute_type(type)), grad = grads[0].to(x.scalar_type()),
                     is_above = x.gt(0);
    variable_list result(5);
    if (ctx->needs_input_grad(0)) {
      const at::Tensor below = at::exp(x).mul_(x.lt(numbers.eps)).sub_(1.0).mul_(numbers.n);
      result[0] = at::where(is_above, x * 2.0 * numbers.p, below).add_(numbers.beta).mul_(grad).to(type);
    }
    if (ctx->needs_input_grad(1)) result[1] = (grad * x.square()).mul_(is_above).sum().view(1);
    if (ctx->needs_input_grad(2))
      result[2] = (grad * xielu_bend(x, numbers.eps)).mul_(is_above.bitwise_not()).sum().view(1);
    return result;
  }
};

}  // namespace

at::Tensor xielu(const at::Tensor& x, const XieluNumbers& numbers) {
  const trace::Scope trace_scope(kXielu);
  check_operands(kXielu, {&x});
  for (const at::Tensor* number : {&numbers.p, &numbers.n, &numbers.beta, &numbers.eps}) {
    TESSERA_CHECK_ARGUMENT(number->numel() == 1 && number->scalar_type() == compute_type(x.scalar_type()),
                           "xielu: single numbers of the type that is computed in");
  }
  if (!needs_graph({x, numbers.p, numbers.n})) return xielu_forward(x, numbers);
  return XieluFunction::apply(x, numbers.p, numbers.n, numbers.beta, numbers.eps);
}

}  // namespace tessera::ops
