#include "tessera/parallel/activation_checkpoint.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/nn/call_hook.h"
#include "tessera/ops/saved_activation.h"

namespace tessera::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Holds the forward that the backward runs again; the graph keeps it.
struct Recompute : torch::CustomClassHolder {
  explicit Recompute(nn::CallHook::Forward forward) : forward(std::move(forward)) {}
  nn::CallHook::Forward forward;
};

class CheckpointFunction : public torch::autograd::Function<CheckpointFunction> {
 public:
  // `anchor` requires a gradient, so that the output does too, even if the input does not.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& anchor,
                            const c10::intrusive_ptr<Recompute>& recompute) {
    ops::save_activations(*context, {input});
    context->saved_data["recompute"] = c10::IValue::make_capsule(recompute);
    context->saved_data["needs_input"] = input.requires_grad();
    const at::AutoGradMode no_grad(false);
    return recompute->forward(input);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const auto recompute =
        c10::static_intrusive_pointer_cast<Recompute>(context->saved_data["recompute"].toCapsule());
    const bool needs_input = context->saved_data["needs_input"].toBool();
    at::Tensor input = ops::take_activations(*context)[0].detach();
    input.set_requires_grad(needs_input);
    at::Tensor output;
    {
      const at::AutoGradMode with_grad(true);
      output = recompute->forward(input);
    }
    // This nested backward accumulates the gradients of the parameters, and that of the input.
    if (output.requires_grad()) torch::autograd::backward({output}, {grad_outputs[0]});
    return {needs_input ? input.grad() : at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

class CheckpointHook : public nn::CallHook {
 public:
  at::Tensor run(const at::Tensor& input, const Forward& next) override {
    if (!at::GradMode::is_enabled()) return next(input);
    const at::Tensor anchor = at::empty({0}, input.options().dtype(at::kFloat)).set_requires_grad(true);
    return CheckpointFunction::apply(input, anchor, c10::make_intrusive<Recompute>(next));
  }
};

}  // namespace

void checkpoint_activations(torch::nn::Module& module) {
  nn::add_call_hook(module, std::make_shared<CheckpointHook>());
}

}  // namespace tessera::parallel
