#include "tessera/ops/swiglu.h"

#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/check_argument.h"
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
  explicit SwigluSource(SwigluInputs inputs) : inputs_(std::move(inputs)) {}
  explicit SwigluSource(std::function<SwigluInputs()> again) : again_(std::move(again)) {}
  bool collects_gradient() const override { return false; }

  const SwigluInputs& inputs() const {
    if (!inputs_.gate.defined()) {
      const at::NoGradGuard no_grad;
      inputs_ = again_();
    }
    return inputs_;
  }

 protected:
  at::Tensor make() const override { return forward_pass(inputs().gate, inputs().up); }

 private:
  mutable SwigluInputs inputs_;
  std::function<SwigluInputs()> again_;
};

struct SwigluFunction : torch::autograd::Function<SwigluFunction> {
  // With a source, that is asked for gate and up in the backward.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate, const at::Tensor& up,
                            const c10::intrusive_ptr<SwigluSource>& source) {
    if (source == nullptr) ctx->save_for_backward({gate, up});
    keep_source(*ctx, source);
    return forward_pass(gate, up);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward(kName);
    const auto source = c10::static_intrusive_pointer_cast<SwigluSource>(take_source(*ctx));
    const auto saved = ctx->get_saved_variables();
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    // Its readers are done.
    if (source != nullptr) source->drop_value();
    const SwigluInputs inputs = source != nullptr ? source->inputs() : SwigluInputs{saved[0], saved[1]};
    const at::Tensor grad = grads[0].contiguous(), gate = inputs.gate.contiguous(),
                     up = inputs.up.contiguous();
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
    return {grad_gate, grad_up, {}};
  }
};

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up,
                  const c10::intrusive_ptr<SwigluSource>& source) {
  const trace::Scope trace_scope("swiglu");
  check_operand(gate, kName);
  check_operand(up, kName);
  TESSERA_CHECK_ARGUMENT(gate.sizes() == up.sizes() && gate.scalar_type() == up.scalar_type(),
                         "swiglu: shapes or types");
  if (!needs_graph({gate, up})) {
    return PlainOps::are_on() ? plain::swiglu(gate, up) : forward_pass(gate, up);
  }
  return SwigluFunction::apply(gate, up, source);
}

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return swiglu(gate, up, c10::intrusive_ptr<SwigluSource>());
}

Activation swiglu_activation(const at::Tensor& gate, const at::Tensor& up,
                             std::function<SwigluInputs()> again) {
  if (!needs_graph({gate, up})) return swiglu(gate, up);
  const auto source = again ? c10::make_intrusive<SwigluSource>(std::move(again))
                            : c10::make_intrusive<SwigluSource>(SwigluInputs{gate.detach(), up.detach()});
  return {swiglu(gate, up, source), source};
}

}  // namespace tessera::ops
