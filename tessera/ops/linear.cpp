#include "tessera/ops/linear.h"

#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/memory_scope.h"
#include "tessera/core/trace.h"
#include "tessera/ops/direct_gradient.h"
#include "tessera/ops/e4m3_layer.h"
#include "tessera/ops/leaf.h"
#include "tessera/ops/product.h"
#include "tessera/ops/row_products.h"
#include "tessera/ops/saved_activation.h"
#include "tessera/ops/small_linear.h"
#include "tessera/ops/support.h"
#include "tessera/ops/widened_linear.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kName = "linear";

at::Tensor forward_pass(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                        const c10::intrusive_ptr<ActivationSource>& source,
                        const c10::intrusive_ptr<RowExchange>& output) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto coming = take_coming(source);
  const auto whole = leaves(x).linear;
  const bool is_whole = coming == nullptr && output == nullptr && product_type() == ProductType::OfOperands;
  if (whole != nullptr && is_whole) return whole(x, weight, bias);
  if (is_widened_linear(x, weight)) {
    if (coming != nullptr) coming->wait_for_all();
    return send_rows(widened_linear(x, weight, bias), output);
  }
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  const at::Tensor rows = flatten_rows(x);
  const at::Tensor y = at::empty({rows.size(0), weight.size(0)}, rows.options().requires_grad(false));
  const auto going = output == nullptr ? nullptr : output->scatter_sum(y);
  make_rows(coming.get(), going.get(), rows.size(0),
            [&](const RowRange& range) { product_out(range.of(y), range.of(rows), weight.t()); });
  if (bias) y.add_(*bias);
  if (going != nullptr) return going->finish();
  return x.dim() == 2 ? y : y.view(sizes);
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias,
                            const c10::intrusive_ptr<ActivationSource>& source,
                            const c10::intrusive_ptr<RowExchange>& output) {
    save_activations(*ctx, {weight.requires_grad() && source == nullptr ? x : at::Tensor()},
                     {x.requires_grad() ? weight : at::Tensor()});
    keep_source(*ctx, source);
    count_reader(x, source);
    keep_exchange(*ctx, output);
    keep_product_type(*ctx);
    // The leaf itself, which its marks are on.
    if (direct_gradient_type(weight)) ctx->saved_data["direct_weight"] = weight;
    ctx->saved_data["x_sizes"] = x.sizes().vec();
    ctx->saved_data["has_bias"] = bias.has_value();
    const ForwardOperands operands(x, weight);
    at::Tensor y = forward_pass(x, weight, bias, source, output);
    operands.keep(*ctx, source);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward(kName);
    const auto saved = take_activations(*ctx);
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const ProductScope products(kept_product_type(*ctx));
    const auto source = take_source(*ctx);
    const GradientRows rows = gradient_rows(*ctx, grads[0]);
    const at::Tensor& grad = rows.grad;
    const bool trains = ctx->needs_input_grad(1);
    if (trains) start_value(source);
    // Two products read the gradient.
    E4m3Operand of_grad(grad);
    const LayerScales scales = kept_scales(*ctx);
    at::Tensor grad_x, grad_weight, grad_bias;
    if (ctx->needs_input_grad(0)) {
      E4m3Operand of_weight(saved[1], scales.weight);
      const E4m3OperandsScope shared(product_type(), {&of_grad, &of_weight});
      grad_x = input_gradient(rows, saved[1], source);
      if (grad_x.defined()) grad_x = grad_x.view(ctx->saved_data["x_sizes"].toIntVector());
    }
    if (rows.coming != nullptr) rows.coming->wait_for_all();
    const MemoryScope memory(MemoryCategory::Gradients);
    if (trains) {
      const at::Tensor x = flatten_rows(source != nullptr ? source->value() : saved[0]);
      keep_e4m3_scale(x, scales.x);
      // The source's other readers read its value too.
      E4m3Operand of_x(x, scales.x);
      const bool is_shared = product_type() == ProductType::E4m3 && source != nullptr;
      const E4m3OperandsScope shared(product_type(),
                                     {&of_grad, is_shared ? &source->value_operand() : &of_x});
      const auto direct = ctx->saved_data.find("direct_weight");
      // A hook may have come since the forward.
      if (direct != ctx->saved_data.end() && direct_gradient_type(direct->second.toTensor())) {
        add_product_to_gradient(direct->second.toTensor(), grad, x);
      } else {
        grad_weight = product(grad.t(), x);
      }
    }
    if (ctx->saved_data["has_bias"].toBool() && ctx->needs_input_grad(2)) grad_bias = grad.sum(0);
    return {grad_x, grad_weight, grad_bias, {}, {}};
  }
};

}  // namespace

at::Tensor linear(const Activation& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                  const c10::intrusive_ptr<RowExchange>& output) {
  const trace::Scope trace_scope("linear");
  const at::Tensor& x = input.value();
  const bool has_bias = bias.has_value() && bias->defined();
  check_operands(kName, {&x, &weight, has_bias ? &*bias : &x});
  TESSERA_CHECK_ARGUMENT(x.dim() > 0 && weight.dim() == 2 && x.size(-1) == weight.size(1) &&
                             (x.scalar_type() == weight.scalar_type() || is_widened_linear(x, weight)),
                         "linear: shapes or types of x and weight");
  TESSERA_CHECK_ARGUMENT(
      !has_bias || (bias->dim() == 1 && bias->size(0) == weight.size(0) &&
                    (bias->scalar_type() == weight.scalar_type() || bias->scalar_type() == x.scalar_type())),
      "linear: shape or type of the bias");
  TESSERA_CHECK_ARGUMENT(output == nullptr || (x.dim() == 2 && !has_bias),
                         "linear: rows that go elsewhere are those of a matrix, without a bias");
  const std::optional<at::Tensor> used = has_bias ? bias : std::nullopt;
  if (!needs_graph({x, weight, has_bias ? *bias : at::Tensor()})) {
    if (!is_small_linear(x, weight)) return forward_pass(x, weight, used, input.source(), output);
    if (const auto coming = take_coming(input.source())) coming->wait_for_all();
    return send_rows(small_linear(x, weight, used), output);
  }
  TESSERA_CHECK_ARGUMENT(x.scalar_type() == weight.scalar_type(),
                         "linear: a gradient through weights of another type");
  return LinearFunction::apply(x, weight, used, input.source(), output);
}

}  // namespace tessera::ops
