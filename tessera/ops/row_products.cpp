#include "tessera/ops/row_products.h"

#include <ATen/ATen.h>

#include "tessera/ops/support.h"

namespace tessera::ops {

RowSource* row_source(const c10::intrusive_ptr<ActivationSource>& source) {
  return dynamic_cast<RowSource*>(source.get());
}

// The first product takes the rows; later ones find them there, as products run one after another.
std::shared_ptr<IncomingRows> take_coming(const c10::intrusive_ptr<ActivationSource>& source) {
  RowSource* const rows = row_source(source);
  return rows == nullptr ? nullptr : std::exchange(rows->coming, nullptr);
}

void count_reader(const at::Tensor& x, const c10::intrusive_ptr<ActivationSource>& source) {
  RowSource* const rows = row_source(source);
  if (rows != nullptr && x.requires_grad()) rows->add_reader();
}

void start_value(const c10::intrusive_ptr<ActivationSource>& source) {
  if (RowSource* const rows = row_source(source)) rows->start();
}

void keep_exchange(torch::autograd::AutogradContext& ctx, const c10::intrusive_ptr<RowExchange>& output) {
  if (output != nullptr) ctx.saved_data["output"] = c10::IValue::make_capsule(output);
}

GradientRows gradient_rows(torch::autograd::AutogradContext& ctx, const at::Tensor& grad) {
  const auto found = ctx.saved_data.find("output");
  if (found == ctx.saved_data.end()) return {flatten_rows(grad), nullptr};
  auto coming = c10::static_intrusive_pointer_cast<RowExchange>(found->second.toCapsule())->gather(grad);
  return {coming->whole(), coming};
}

at::Tensor send_rows(const at::Tensor& y, const c10::intrusive_ptr<RowExchange>& output) {
  if (output == nullptr) return y;
  const auto going = output->scatter_sum(y);
  going->make_each([](const RowRange&) {});
  return going->finish();
}

at::Tensor input_gradient(const GradientRows& gradient, const Weight& weight,
                          const c10::intrusive_ptr<ActivationSource>& source, const MoreInputGradient& more) {
  const auto& [grad, coming] = gradient;
  RowSource* const rows = row_source(source);
  if (rows == nullptr && coming == nullptr) {
    const RowRange all{0, grad.size(0)};
    const at::Tensor made =
        input_gradient(grad, weight, source, more.factors ? more.factors(all) : MoreFactors());
    if (more.after) more.after(all, made.defined() ? made : source->gradient);
    return made;
  }
  // The sum is put into source->gradient before going_gradient() is called: the last reader's exchange sends
  // the rows of that tensor.
  const bool collects = source != nullptr && source->collects_gradient();
  const bool adds = collects && source->gradient.defined();
  const at::Tensor sum = adds ? source->gradient : at::empty({grad.size(0), weight.size(1)}, grad.options());
  if (collects) source->gradient = sum;
  const auto going = rows != nullptr ? rows->going_gradient() : nullptr;
  make_rows(coming.get(), going.get(), grad.size(0), [&](const RowRange& range) {
    const at::Tensor part = range.of(sum);
    const MoreFactors factors = more.factors ? more.factors(range) : MoreFactors();
    adds ? add_product(part, range.of(grad), weight, factors)
         : product_out(part, range.of(grad), weight, factors);
    if (more.after) more.after(range, part);
  });
  return collects ? at::Tensor() : sum;
}

}  // namespace tessera::ops
