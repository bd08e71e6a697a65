#include "tessera/ops/mlp_activation.h"

#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/trace.h"
#include "tessera/ops/host.h"
#include "tessera/ops/plain.h"
#include "tessera/ops/saved_activation.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kName = "mlp_activation";
constexpr int64_t kGrain = 16384;

// Tell whether a kernel computes f of these inputs; the plain formula computes the others.
bool takes_swiglu_kernel(Nonlinearity f, const MlpInputs& inputs) {
  return f == Nonlinearity::Silu && inputs.up.defined();
}
bool takes_gelu_kernel(Nonlinearity f, const MlpInputs& inputs) {
  return f == Nonlinearity::GeluTanh && !inputs.up.defined();
}

at::Tensor gelu_tanh_forward(const at::Tensor& x_in) {
  const at::Tensor x = x_in.contiguous(), y = at::empty(x.sizes(), x.options());
  dispatch(x.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    const T* from = read<T>(x);
    T* to = write<T>(y);
    at::parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      kernels::gelu_tanh_forward(from + begin, to + begin, end - begin);
    });
  });
  return y;
}

at::Tensor gelu_tanh_backward(const at::Tensor& grad_in, const at::Tensor& x_in) {
  const at::Tensor grad = grad_in.contiguous(), x = x_in.contiguous();
  const at::Tensor grad_x = at::empty(x.sizes(), x.options());
  dispatch(x.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    const T *dy = read<T>(grad), *from = read<T>(x);
    T* to = write<T>(grad_x);
    at::parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      kernels::gelu_tanh_backward(dy + begin, from + begin, to + begin, end - begin);
    });
  });
  return grad_x;
}

at::Tensor swiglu_forward(const MlpInputs& inputs) {
  const at::Tensor gate = inputs.gate.contiguous(), up = inputs.up.contiguous();
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

// Writes the gradients that are defined; undefined ones are not wanted.
void swiglu_backward(const at::Tensor& grad_in, const MlpInputs& inputs, const MlpInputs& gradients) {
  const at::Tensor grad = grad_in.contiguous(), gate = inputs.gate.contiguous(), up = inputs.up.contiguous();
  dispatch(gate.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    const T *dy = read<T>(grad), *g = read<T>(gate), *u = read<T>(up);
    T *dg = write<T>(gradients.gate), *du = write<T>(gradients.up);
    at::parallel_for(0, gate.numel(), kGrain, [&](int64_t begin, int64_t end) {
      kernels::swiglu_backward(dy + begin, g + begin, u + begin, dg == nullptr ? nullptr : dg + begin,
                               du == nullptr ? nullptr : du + begin, end - begin);
    });
  });
}

}  // namespace

at::Tensor host::activate_mlp(Nonlinearity f, const MlpInputs& inputs) {
  if (takes_swiglu_kernel(f, inputs)) return swiglu_forward(inputs);
  if (takes_gelu_kernel(f, inputs)) return gelu_tanh_forward(inputs.gate);
  return plain::activate_mlp(f, inputs);
}

MlpInputs host::activate_mlp_backward(Nonlinearity f, const at::Tensor& grad, const MlpInputs& inputs,
                                      bool want_gate, bool want_up) {
  MlpInputs gradients;
  if (takes_swiglu_kernel(f, inputs)) {
    if (want_gate) gradients.gate = at::empty(inputs.gate.sizes(), inputs.gate.options());
    if (want_up) gradients.up = at::empty(inputs.up.sizes(), inputs.up.options());
    swiglu_backward(grad, inputs, gradients);
  } else if (takes_gelu_kernel(f, inputs)) {
    if (want_gate) gradients.gate = gelu_tanh_backward(grad, inputs.gate);
  } else {
    return plain::activate_mlp_backward(f, grad, inputs, want_gate, want_up);
  }
  return gradients;
}

namespace {

at::Tensor forward_pass(Nonlinearity f, const MlpInputs& inputs) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return leaves(inputs.gate).activate_mlp(f, inputs);
}

// Keeps the inputs of the nonlinearity, or the function that makes them again, which runs once.
class MlpSource : public ActivationSource {
 public:
  MlpSource(Nonlinearity f, const MlpInputs& inputs) : f_(f), gate_(inputs.gate), up_(inputs.up) {}
  MlpSource(Nonlinearity f, std::function<MlpInputs()> again) : f_(f), again_(std::move(again)) {}
  bool collects_gradient() const override { return false; }

  MlpInputs inputs() const {
    if (!again_) return {gate_.get(), up_.get()};
    if (!made_again_.gate.defined()) {
      const at::NoGradGuard no_grad;
      made_again_ = again_();
    }
    return made_again_;
  }

 protected:
  at::Tensor make() const override { return forward_pass(f_, inputs()); }

 private:
  Nonlinearity f_;
  SavedActivation gate_, up_;
  std::function<MlpInputs()> again_;
  mutable MlpInputs made_again_;
};

struct MlpFunction : torch::autograd::Function<MlpFunction> {
  // If there is a source, it keeps the inputs, and the backward asks it for them.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate, const std::optional<at::Tensor>& up,
                            Nonlinearity f, const c10::intrusive_ptr<MlpSource>& source) {
    const MlpInputs inputs{gate, up.value_or(at::Tensor())};
    if (source == nullptr) save_activations(*ctx, {inputs.gate, inputs.up});
    keep_source(*ctx, source);
    keep_product_type(*ctx);
    ctx->saved_data["f"] = static_cast<int64_t>(f);
    ctx->saved_data["is_gated"] = up.has_value();
    return forward_pass(f, inputs);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward(kName);
    const auto source = c10::static_intrusive_pointer_cast<MlpSource>(take_source(*ctx));
    const auto saved = take_activations(*ctx);
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const ProductScope products(kept_product_type(*ctx));
    // All readers of the value have run their backwards.
    if (source != nullptr) source->free_value();
    const MlpInputs inputs = source != nullptr ? source->inputs() : MlpInputs{saved[0], saved[1]};
    const bool want_up = ctx->saved_data["is_gated"].toBool() && ctx->needs_input_grad(1);
    const auto f = static_cast<Nonlinearity>(ctx->saved_data["f"].toInt());
    const MlpInputs gradients =
        leaves(inputs.gate).activate_mlp_backward(f, grads[0], inputs, ctx->needs_input_grad(0), want_up);
    return {gradients.gate, gradients.up, {}, {}};
  }
};

at::Tensor activate(Nonlinearity f, const MlpInputs& inputs, const c10::intrusive_ptr<MlpSource>& source) {
  const trace::Scope trace_scope(kName);
  const auto& [gate, up] = inputs;
  check_operands(kName, {&gate, up.defined() ? &up : &gate});
  if (up.defined()) {
    TESSERA_CHECK_ARGUMENT(gate.sizes() == up.sizes() && gate.scalar_type() == up.scalar_type(),
                           "mlp_activation: shapes or types");
  }
  if (!needs_graph({gate, up})) return forward_pass(f, inputs);
  return MlpFunction::apply(gate, up.defined() ? std::optional(up) : std::nullopt, f, source);
}

}  // namespace

at::Tensor activate_mlp(Nonlinearity f, const MlpInputs& inputs) { return activate(f, inputs, {}); }

Activation mlp_activation(Nonlinearity f, const MlpInputs& inputs, std::function<MlpInputs()> again) {
  if (!needs_graph({inputs.gate, inputs.up})) return activate_mlp(f, inputs);
  const auto source =
      again ? c10::make_intrusive<MlpSource>(f, std::move(again)) : c10::make_intrusive<MlpSource>(f, inputs);
  return {activate(f, inputs, source), source};
}

}  // namespace tessera::ops
