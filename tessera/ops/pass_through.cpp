#include "tessera/ops/pass_through.h"

#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/trace.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Change : torch::CustomClassHolder {
  explicit Change(ChangeInPlace how) : apply(std::move(how)) {}
  ChangeInPlace apply;
};

// Collects the gradients of the readers of a passed value apart from those of other readers of the source.
class PassedSource : public ActivationSource {
 public:
  explicit PassedSource(c10::intrusive_ptr<ActivationSource> from) : behind(std::move(from)) {}
  bool collects_gradient() const override { return true; }
  const c10::intrusive_ptr<ActivationSource> behind;

 protected:
  at::Tensor make() const override { return behind->value(); }
};

struct GradientFunction : torch::autograd::Function<GradientFunction> {
  // source: of the result; null where x has none.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const c10::intrusive_ptr<PassedSource>& source,
                            const c10::intrusive_ptr<Change>& change) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    ctx->set_materialize_grads(false);
    keep_source(*ctx, source);
    ctx->saved_data["change"] = c10::IValue::make_capsule(change);
    ctx->saved_data["sizes"] = x.sizes().vec();
    return x.view_as(x);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward("change_gradient");
    const auto source = c10::static_intrusive_pointer_cast<PassedSource>(take_source(*ctx));
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    at::Tensor gradient;
    if (source != nullptr && source->gradient.defined()) {
      gradient = std::exchange(source->gradient, {}).view(ctx->saved_data["sizes"].toIntVector());
      if (grads[0].defined()) gradient.add_(grads[0]);
    } else if (grads[0].defined()) {
      // What autograd brings may be another function's, too.
      gradient = grads[0].clone(at::MemoryFormat::Contiguous);
    } else {
      return {{}, {}, {}};
    }
    c10::static_intrusive_pointer_cast<Change>(ctx->saved_data["change"].toCapsule())->apply(gradient);
    ActivationSource* behind = source == nullptr ? nullptr : source->behind.get();
    if (behind == nullptr || !behind->collects_gradient()) return {gradient, {}, {}};
    if (behind->gradient.defined()) {
      behind->gradient.add_(gradient.view(behind->gradient.sizes()));
    } else {
      behind->gradient = flatten_rows(gradient);
    }
    return {{}, {}, {}};
  }
};

struct ValueFunction : torch::autograd::Function<ValueFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& y, const ChangeInPlace& change) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    ctx->mark_dirty({y});
    change(y);
    return y;
  }
  static variable_list backward(AutogradContext*, const variable_list& grads) { return {grads[0], {}}; }
};

}  // namespace

Activation change_gradient(const Activation& x, ChangeInPlace how) {
  const trace::Scope trace_scope("change_gradient");
  if (!needs_graph({x.value()})) return x;
  const auto source = x.source() == nullptr ? c10::intrusive_ptr<PassedSource>()
                                            : c10::make_intrusive<PassedSource>(x.source());
  const auto change = c10::make_intrusive<Change>(std::move(how));
  return {GradientFunction::apply(x.value(), source, change), source};
}

at::Tensor change_value_(const at::Tensor& y, const ChangeInPlace& change) {
  const trace::Scope trace_scope("change_value");
  TESSERA_CHECK_ARGUMENT(y.is_contiguous(), "change_value_: y must be dense");
  if (needs_graph({y})) return ValueFunction::apply(y, change);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  change(y);
  return y;
}

}  // namespace tessera::ops
