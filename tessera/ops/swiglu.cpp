#include "tessera/ops/swiglu.h"

#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/trace.h"
#include "tessera/ops/plain.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kName = "swiglu";
constexpr int64_t kGrain = 16384;

at::Tensor forward_pass(const at::Tensor& gate_in, const at::Tensor& up_in) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor gate = gate_in.contiguous(), up = up_in.contiguous();
  at::Tensor y = at::empty(gate.sizes(), gate.options());
  dispatch(gate.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    const T *g = read<T>(gate), *u = read<T>(up);
    T* to = write<T>(y);
    at::parallel_for(0, gate.numel(), kGrain, [&](int64_t begin, int64_t end) {
      kernels::swiglu_forward(g + begin, u + begin, to + begin, end - begin);
    });
  });
  return y;
}

class SwigluSource : public ActivationSource {
 public:
  SwigluSource(at::Tensor gate, at::Tensor up) : gate_(std::move(gate)), up_(std::move(up)) {}
  bool collects_gradient() const override { return false; }

 protected:
  at::Tensor make() const override { return forward_pass(gate_, up_); }

 private:
  at::Tensor gate_, up_;
};

struct SwigluFunction : torch::autograd::Function<SwigluFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate, const at::Tensor& up) {
    ctx->save_for_backward({gate, up});
    return forward_pass(gate, up);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward(kName);
    const auto saved = ctx->get_saved_variables();
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::Tensor grad = grads[0].contiguous(), gate = saved[0].contiguous(), up = saved[1].contiguous();
    at::Tensor grad_gate, grad_up;
    if (ctx->needs_input_grad(0)) grad_gate = at::empty(gate.sizes(), gate.options());
    if (ctx->needs_input_grad(1)) grad_up = at::empty(up.sizes(), up.options());
    dispatch(gate.scalar_type(), [&](auto tag) {
      using T = decltype(tag);
      const T *dy = read<T>(grad), *g = read<T>(gate), *u = read<T>(up);
      T *dg = write<T>(grad_gate), *du = write<T>(grad_up);
      at::parallel_for(0, gate.numel(), kGrain, [&](int64_t begin, int64_t end) {
        kernels::swiglu_backward(dy + begin, g + begin, u + begin, dg == nullptr ? nullptr : dg + begin,
                                 du == nullptr ? nullptr : du + begin, end - begin);
      });
    });
    return {grad_gate, grad_up};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  const trace::Scope trace_scope("swiglu");
  check_operand(gate, kName);
  check_operand(up, kName);
  TESSERA_ASSERT(gate.sizes() == up.sizes() && gate.scalar_type() == up.scalar_type(),
                 "swiglu: shapes or types");
  if (!needs_graph({gate, up})) {
    return PlainOps::are_on() ? plain::swiglu(gate, up) : forward_pass(gate, up);
  }
  return SwigluFunction::apply(gate, up);
}

Activation swiglu_activation(const at::Tensor& gate, const at::Tensor& up) {
  if (!needs_graph({gate, up})) return swiglu(gate, up);
  return {swiglu(gate, up), c10::make_intrusive<SwigluSource>(gate.detach(), up.detach())};
}

}  // namespace tessera::ops
