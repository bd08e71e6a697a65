#include "tessera/ops/pass_through.h"

#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/trace.h"
#include "tessera/ops/row_products.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// How a value and its gradient are changed: by functions, or by an exchange of rows.
struct Exchange : torch::CustomClassHolder {
  Exchange(Transform value, Transform gradient) : value(std::move(value)), gradient(std::move(gradient)) {}
  // Takes an exchange of rows, for which PassedSource makes the value.
  explicit Exchange(const c10::intrusive_ptr<RowExchange>& rows)
      : gradient([rows](const at::Tensor& g) { return send_rows(g, rows); }), rows(rows) {}
  const Transform value;  // empty: the value is x itself
  const Transform gradient;
  c10::intrusive_ptr<RowExchange> rows;  // null: no rows travel while products run
};

// The source of a passed value. It collects the gradients of its readers apart from those that readers of x
// add to the source behind it, as only the former are to be changed.
class PassedSource : public RowSource {
 public:
  PassedSource(const Activation& x, c10::intrusive_ptr<Exchange> exchange)
      : behind(x.source()),
        kept_(x.source() == nullptr ? x.value().detach() : at::Tensor()),
        exchange_(std::move(exchange)) {}
  void start() override {
    if (exchange_->rows != nullptr) begin();
  }
  const c10::intrusive_ptr<ActivationSource> behind;  // source of x; null: x is kept instead
  // Rows of `gradient` on their way, once its last reader has made it.
  std::shared_ptr<OutgoingRows> going;

 protected:
  at::Tensor make() const override {
    if (exchange_->rows != nullptr) return begin().wait_for_all();
    return exchange_->value ? exchange_->value(input()) : input();
  }

 private:
  std::shared_ptr<OutgoingRows> send_gradient() override {
    if (exchange_->rows != nullptr) going = exchange_->rows->scatter_sum(gradient);
    return going;
  }
  const at::Tensor& input() const { return behind == nullptr ? kept_ : behind->value(); }
  // Starts to gather the rows of the value, at its first call alone.
  IncomingRows& begin() const {
    if (again_ == nullptr) again_ = exchange_->rows->gather(input());
    return *again_;
  }

  const at::Tensor kept_;
  const c10::intrusive_ptr<Exchange> exchange_;
  mutable std::shared_ptr<IncomingRows> again_;  // rows that are gathered in the backward
};

struct ExchangeFunction : torch::autograd::Function<ExchangeFunction> {
  // source: that of the result, or null. coming: the result, if its rows are on their way, or null.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const c10::intrusive_ptr<PassedSource>& source,
                            const c10::intrusive_ptr<Exchange>& exchange,
                            const std::shared_ptr<IncomingRows>& coming) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    ctx->set_materialize_grads(false);
    keep_source(*ctx, source);
    ctx->saved_data["exchange"] = c10::IValue::make_capsule(exchange);
    // An alias of the rows that are coming: autograd puts its own metadata on a node's result, and the
    // readers wait for the rows themselves.
    at::Tensor result = coming != nullptr ? coming->whole().alias()
                        : exchange->value ? exchange->value(x)
                                          : x;
    if (result.is_same(x)) {
      result = x.view_as(x);
      // Both share one count of writes, so that a write to either ends the scale that is noted for the other.
      result.unsafeGetTensorImpl()->set_version_counter(x.unsafeGetTensorImpl()->version_counter());
      keep_e4m3_scale(result, known_e4m3_scale(x));
    }
    ctx->saved_data["sizes"] = result.sizes().vec();
    return result;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward("exchange");
    const auto source = c10::static_intrusive_pointer_cast<PassedSource>(take_source(*ctx));
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto how = c10::static_intrusive_pointer_cast<Exchange>(ctx->saved_data["exchange"].toCapsule());
    at::Tensor gradient;
    // The last reader has sent the rows of the sum: takes the holder's own rows.
    if (source != nullptr && source->going != nullptr) {
      gradient = std::exchange(source->going, nullptr)->finish();
      source->gradient.reset();
      // These are the gradients of readers that know no source, which autograd has summed.
      if (grads[0].defined()) gradient.add_(how->gradient(grads[0].contiguous()));
      return pass_on(source.get(), gradient);
    }
    if (source != nullptr && source->gradient.defined()) {
      gradient = std::exchange(source->gradient, {}).view(ctx->saved_data["sizes"].toIntVector());
      if (grads[0].defined()) gradient.add_(grads[0]);
    } else if (grads[0].defined()) {
      // The gradient is copied, as it is changed in place and another function may hold what autograd brings.
      gradient = grads[0].clone(at::MemoryFormat::Contiguous);
    } else {
      return {{}, {}, {}, {}};
    }
    return pass_on(source.get(), how->gradient(gradient));
  }

 private:
  // Adds the gradient to what the source behind collects, or gives it to autograd if there is none.
  static variable_list pass_on(const PassedSource* source, const at::Tensor& gradient) {
    ActivationSource* behind = source == nullptr ? nullptr : source->behind.get();
    if (behind == nullptr || !behind->collects_gradient()) return {gradient, {}, {}, {}};
    if (behind->gradient.defined()) {
      behind->gradient.add_(gradient.view(behind->gradient.sizes()));
    } else {
      behind->gradient = flatten_rows(gradient);
    }
    return {{}, {}, {}, {}};
  }
};

// Changes a value in place; gradients pass unchanged.
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

Activation change_gradient(const Activation& x, ChangeInPlace change) {
  const trace::Scope trace_scope("change_gradient");
  if (!needs_graph({x.value()})) return x;
  const auto how =
      c10::make_intrusive<Exchange>(Transform(), [change = std::move(change)](const at::Tensor& g) {
        change(g);
        return g;
      });
  const auto source =
      x.source() == nullptr ? c10::intrusive_ptr<PassedSource>() : c10::make_intrusive<PassedSource>(x, how);
  return {ExchangeFunction::apply(x.value(), source, how, std::shared_ptr<IncomingRows>()), source};
}

Activation exchange(const Activation& x, Transform value, Transform gradient) {
  const trace::Scope trace_scope("exchange");
  const auto how = c10::make_intrusive<Exchange>(std::move(value), std::move(gradient));
  // Products keep the source also if x has no gradient and only their weights train.
  const auto source = c10::make_intrusive<PassedSource>(x, how);
  return {ExchangeFunction::apply(x.value(), source, how, std::shared_ptr<IncomingRows>()), source};
}

Activation exchange(const Activation& x, const c10::intrusive_ptr<RowExchange>& rows) {
  const trace::Scope trace_scope("exchange");
  TESSERA_CHECK_ARGUMENT(x.value().dim() == 2, "exchange: rows are those of a matrix");
  const auto how = c10::make_intrusive<Exchange>(rows);
  const auto source = c10::make_intrusive<PassedSource>(x, how);
  const auto coming = [&] {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return rows->gather(x.value());
  }();
  source->coming = coming;
  return {ExchangeFunction::apply(x.value(), source, how, coming), source};
}

at::Tensor exchange_value(const at::Tensor& x, Transform value, Transform gradient) {
  const trace::Scope trace_scope("exchange");
  const auto how = c10::make_intrusive<Exchange>(std::move(value), std::move(gradient));
  return ExchangeFunction::apply(x, c10::intrusive_ptr<PassedSource>(), how, std::shared_ptr<IncomingRows>());
}

at::Tensor change_value_(const at::Tensor& y, const ChangeInPlace& change) {
  const trace::Scope trace_scope("change_value");
  TESSERA_CHECK_ARGUMENT(y.is_contiguous(), "change_value_: y must be dense");
  if (needs_graph({y})) return ValueFunction::apply(y, change);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  change(y);
  note_write(y);
  return y;
}

}  // namespace tessera::ops
