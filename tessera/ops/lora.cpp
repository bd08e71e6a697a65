#include "tessera/ops/lora.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/trace.h"
#include "tessera/device/memory_scope.h"
#include "tessera/ops/e4m3_layer.h"
#include "tessera/ops/leaf.h"
#include "tessera/ops/product.h"
#include "tessera/ops/row_products.h"
#include "tessera/ops/saved_activation.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kName = "lora_linear";

// Returns rows * mask, or the rows themselves if there is no mask. Both hold the same rows.
at::Tensor dropped(const at::Tensor& rows, const at::Tensor& mask) {
  return mask.defined() ? at::mul(rows, mask) : rows;
}

at::Tensor flat_mask(const at::Tensor& mask) { return mask.defined() ? flatten_rows(mask) : mask; }

at::Tensor rows_of(const RowRange& range, const at::Tensor& rows) {
  return rows.defined() ? range.of(rows) : rows;
}

// Runs `multiply` with products in the operands' own type: the type in force (fp8, say) is for the layer's
// weight alone.
template <class F>
auto of_adapter(const F& multiply) {
  const ProductScope products(ProductType::OfOperands);
  return multiply();
}

// Returns the result and the adapter's inner product (x * mask) a^T, [tokens, rank].
std::pair<at::Tensor, at::Tensor> forward_pass(const at::Tensor& x, const Weight& weight,
                                               const at::Tensor& bias, const at::Tensor& a,
                                               const at::Tensor& b, double scaling, const at::Tensor& mask_in,
                                               const c10::intrusive_ptr<ActivationSource>& source,
                                               const c10::intrusive_ptr<RowExchange>& output) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto coming = take_coming(source);
  const auto whole = leaves(x).lora_linear;
  const bool is_whole = coming == nullptr && output == nullptr && !weight.is_coded() &&
                        product_type() == ProductType::OfOperands;
  if (whole != nullptr && is_whole) {
    auto [y, inner] = whole(x, weight.values(), bias.defined() ? std::optional(bias) : std::nullopt, a, b,
                            scaling, mask_in);
    return {y, flatten_rows(inner)};
  }
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  const at::Tensor rows = flatten_rows(x), mask = flat_mask(mask_in);
  // A device's linear leaf adds the bias inside its product; the adapter's product is then added to the
  // result.
  if (const auto layer = leaves(x).linear; layer != nullptr && is_whole && bias.defined()) {
    const at::Tensor inner = product(dropped(rows, mask), a.t()), y = layer(rows, weight.values(), bias);
    add_product(y, inner, at::mul(b, scaling).t());
    return {x.dim() == 2 ? y : y.view(sizes), inner};
  }
  const auto options = rows.options().requires_grad(false);
  const at::Tensor inner = at::empty({rows.size(0), a.size(0)}, options);
  const at::Tensor y = at::empty({rows.size(0), weight.size(0)}, options);
  const at::Tensor scaled_b = at::mul(b, scaling).t();
  const auto going = output == nullptr ? nullptr : output->scatter_sum(y);
  // The adapter is more depth of the weight's product: y = [x, inner] [W, scaling b]^T, range by range as
  // rows come and go.
  make_rows(coming.get(), going.get(), rows.size(0), [&](const RowRange& range) {
    const at::Tensor in = range.of(rows), part = range.of(inner);
    of_adapter([&] { product_out(part, dropped(in, rows_of(range, mask)), a.t()); });
    product_out(range.of(y), in, weight.t(), {part, scaled_b});
  });
  if (going != nullptr) return {going->finish(), inner};
  if (bias.defined()) y.add_(bias);
  return {x.dim() == 2 ? y : y.view(sizes), inner};
}

// scaling grad b, [tokens, rank]: the gradient of the adapter's inner product, which the gradients of x and
// of a read. References its operands.
struct InnerGradient {
  const at::Tensor& grad;
  const at::Tensor& b;
  double scaling;
  at::Tensor value;

  // Makes the rows, and returns them.
  at::Tensor make(const RowRange& range) const {
    const at::Tensor part = range.of(value);
    of_adapter([&] { product_out(part, range.of(grad), b); });
    part.mul_(scaling);
    return part;
  }
};

// Returns what the adapter adds to the gradient of x, grad W + (inner a) * mask. Without a mask, the second
// product is more depth of the first; with one, it is made apart and added to the rows. Either way the rows
// of `inner` are made as those of grad come. References the arguments.
MoreInputGradient gradient_through_adapter(const InnerGradient& inner, const at::Tensor& a,
                                           const at::Tensor& mask) {
  MoreInputGradient more;
  more.factors = [&](const RowRange& range) {
    const at::Tensor part = inner.make(range);
    return mask.defined() ? MoreFactors() : MoreFactors{part, a};
  };
  if (mask.defined()) {
    more.after = [&](const RowRange& range, at::Tensor sum) {
      sum.addcmul_(of_adapter([&] { return product(range.of(inner.value), a); }), range.of(mask));
    };
  }
  return more;
}

// The op with a graph, by ways 1 and 5 of [Note: ways around autograd] in linear.cpp. Gradients of weight, a
// and b go to autograd.
struct LoraFunction : torch::autograd::Function<LoraFunction> {
  // needs_input_grad() counts the tensors among the arguments, and an absent optional one has no number: so
  // the optional ones come last.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& bias,
                            double scaling, const std::optional<at::Tensor>& mask_in,
                            const c10::intrusive_ptr<ActivationSource>& source,
                            const c10::intrusive_ptr<RowExchange>& output, const WeightForm& form) {
    const at::Tensor mask = mask_in.value_or(at::Tensor());
    const ForwardOperands operands(x, weight);
    const Weight operand(weight, form);
    keep_form(*ctx, operand);
    auto [y, inner] =
        forward_pass(x, operand, bias.value_or(at::Tensor()), a, b, scaling, mask, source, output);
    operands.keep(*ctx, source);
    const bool for_x = x.requires_grad(), for_a = a.requires_grad(), for_b = b.requires_grad();
    const at::Tensor none;
    const bool keeps_x = (weight.requires_grad() || for_a) && source == nullptr;
    save_activations(*ctx, {keeps_x ? x : none, for_b ? inner : none, for_x || for_a ? mask : none},
                     {for_x ? weight : none, for_x ? a : none, for_x || for_a ? b : none});
    keep_source(*ctx, source);
    count_reader(x, source);
    keep_exchange(*ctx, output);
    keep_product_type(*ctx);
    ctx->saved_data["x_sizes"] = x.sizes().vec();
    ctx->saved_data["has_bias"] = bias.has_value();
    ctx->saved_data["scaling"] = scaling;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward(kName);
    const auto saved = take_activations(*ctx);
    const auto source = take_source(*ctx);
    const at::Tensor &inner = saved[1], &weight = saved[3], &a = saved[4], &b = saved[5];
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const ProductScope products(kept_product_type(*ctx));
    const at::Tensor mask = flat_mask(saved[2]);
    const GradientRows rows = gradient_rows(*ctx, grads[0]);
    const at::Tensor& grad = rows.grad;
    const bool want_x = ctx->needs_input_grad(0), want_a = ctx->needs_input_grad(2);
    const bool reads_x = want_a || ctx->needs_input_grad(1);
    if (reads_x) start_value(source);
    // The layer's products, not the adapter's, share the cast of grad.
    E4m3Operand of_grad(grad);
    const LayerScales scales = kept_scales(*ctx);
    at::Tensor grad_x, grad_weight, grad_a, grad_b, grad_bias;
    InnerGradient grad_inner = {grad, b, ctx->saved_data["scaling"].toDouble(), {}};
    if (want_x || want_a) grad_inner.value = at::empty({grad.size(0), b.size(1)}, grad.options());
    if (want_x) {
      E4m3Operand of_weight(weight, scales.weight);
      const E4m3OperandsScope shared(product_type(), {&of_grad, &of_weight});
      grad_x = input_gradient(rows, Weight(weight, kept_form(*ctx)), source,
                              gradient_through_adapter(grad_inner, a, mask));
      if (grad_x.defined()) grad_x = grad_x.view(ctx->saved_data["x_sizes"].toIntVector());
    }
    // If no gradient of x was computed, nothing has waited for the rows of grad yet.
    if (rows.coming != nullptr) rows.coming->wait_for_all();
    if (want_a && !want_x) grad_inner.make({0, grad.size(0)});
    at::Tensor x;
    if (reads_x) x = flatten_rows(source != nullptr ? source->value() : saved[0]);
    const MemoryScope memory(MemoryCategory::Gradients);
    if (ctx->needs_input_grad(1)) {
      E4m3Operand of_x(x, scales.x);
      const E4m3OperandsScope shared(product_type(), {&of_grad, &of_x});
      grad_weight = product(grad.t(), x);
    }
    const ProductScope products_of_adapter(ProductType::OfOperands);
    if (want_a) grad_a = product(grad_inner.value.t(), dropped(x, mask));
    if (ctx->needs_input_grad(3)) grad_b = product(inner.t(), grad).mul_(grad_inner.scaling).t();
    if (ctx->saved_data["has_bias"].toBool() && ctx->needs_input_grad(4)) grad_bias = grad.sum(0);
    return {grad_x, grad_weight, grad_a, grad_b, grad_bias, {}, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor lora_linear(const Activation& input, const Weight& weight, const std::optional<at::Tensor>& bias,
                       const at::Tensor& a, const at::Tensor& b, double scaling,
                       const std::optional<at::Tensor>& dropout_mask_scaled,
                       const c10::intrusive_ptr<RowExchange>& output) {
  const trace::Scope trace_scope("lora_linear");
  const at::Tensor& x = input.value();
  const at::Tensor& typed = weight.is_coded() ? x : weight.values();  // a tensor of the weight's type
  check_operands(kName, {&x, &typed, &a, &b});
  for (const at::Tensor* operand : {&typed, &a, &b}) {
    TESSERA_CHECK_ARGUMENT(operand->scalar_type() == x.scalar_type(), "lora_linear: types differ");
  }
  const bool has_bias = bias.has_value() && bias->defined();
  const bool has_mask = dropout_mask_scaled.has_value() && dropout_mask_scaled->defined();
  TESSERA_CHECK_ARGUMENT(x.dim() > 0 && weight.stored().dim() == 2 && x.size(-1) == weight.size(1),
                         "lora_linear: x or weight");
  TESSERA_CHECK_ARGUMENT(a.dim() == 2 && b.dim() == 2 && a.size(1) == weight.size(1) &&
                             b.size(0) == weight.size(0) && a.size(0) == b.size(1),
                         "lora_linear: shapes of the adapter");
  TESSERA_CHECK_ARGUMENT(!has_bias || (bias->dim() == 1 && bias->size(0) == weight.size(0) &&
                                       bias->scalar_type() == x.scalar_type()),
                         "lora_linear: shape or type of the bias");
  TESSERA_CHECK_ARGUMENT(
      !has_mask || (dropout_mask_scaled->sizes() == x.sizes() && !dropout_mask_scaled->requires_grad() &&
                    dropout_mask_scaled->scalar_type() == x.scalar_type()),
      "lora_linear: the mask must have x's shape and type, and no gradient");
  TESSERA_CHECK_ARGUMENT(output == nullptr || (x.dim() == 2 && !has_bias),
                         "lora_linear: rows that go elsewhere are those of a matrix, without a bias");
  const at::Tensor used_bias = has_bias ? *bias : at::Tensor();
  if (!needs_graph({x, weight.stored(), used_bias, a, b})) {
    return forward_pass(x, weight, used_bias, a, b, scaling, has_mask ? *dropout_mask_scaled : at::Tensor(),
                        input.source(), output)
        .first;
  }
  return LoraFunction::apply(x, weight.stored(), a, b, has_bias ? bias : std::nullopt, scaling,
                             has_mask ? dropout_mask_scaled : std::nullopt, input.source(), output,
                             weight.form());
}

}  // namespace tessera::ops
