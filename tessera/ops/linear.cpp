#include "tessera/ops/linear.h"

#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/trace.h"
#include "tessera/device/memory_scope.h"
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

// [Note: ways around autograd] Left to itself, autograd keeps every operand of a product for the backward,
// makes every gradient as a tensor of its own, adds these up one by one, and is done with a node only when
// all of its gradients are there. Five ways around that meet in the ops of layers:
//
// 1. Activation sources (activation.h). A product keeps its input's source instead of the input, and asks the
// source for the value in its backward. If the source collects gradients, input_gradient() adds the gradient
// of x to source->gradient, inside the product, and gives autograd an undefined one. The edge to the op that
// made x remains, so autograd still runs that op's backward only after the backwards of all readers; it then
// finds their sum in the source, and adds what readers that know no source gave to autograd. Such an op must
// not let autograd materialize undefined gradients as zeros.
//
// 2. Direct gradients (direct_gradient.h). The gradient of a marked parameter is added to parameter.grad(),
// and autograd gets an undefined one. The parameter's accumulator still runs, after all edges to it, so the
// hook on it (fully_shard's) starts the reduction when the gradient is whole.
//
// 3. Gradients of the loss that are made in the forward (linear_cross_entropy.cpp). The backward only scales
// them, and hands them on: hidden's to autograd, the weight's by way 2 if it is marked.
//
// 4. Deferred gradients (deferred_gradient.h). In a DeferGradientsScope, way 2 puts the product or addition
// into a list that runs after the backward. The accumulator and its hook then run BEFORE the gradient is
// there, so the hook must put the reduction into the same list, behind the products
// (parallel/fsdp/shard_state.cpp). The list keeps the operands as they are; nobody may write x or the
// gradient of y meanwhile.
//
// 5. Row exchange (row_exchange.h, row_products.h). The source's value and its gradient may have rows that
// are still on their way. In the forward the first reader takes the rows as they come (take_coming()). In the
// backward the value's rows are started early (start_value()), and the last reader sends the sum's rows while
// it makes them: readers are counted in the forward (count_reader()) and counted down in input_gradient(). If
// a counted reader has no backward after all, none is the last one, and the finished sum is sent when the
// exchange's own backward runs (pass_through.cpp). Whoever writes an op here must keep to this count on all
// ranks alike, as sending is collective.
//
// A backward that uses them (LinearFunction, LoraFunction) keeps this order: it takes what was saved, starts
// the rows of grad y and of x, makes the gradient of x, for which the ops before it wait, and then the
// gradients of weights, for which none of them wait and by when the rows of x have come.

at::Tensor forward_pass(const at::Tensor& x, const Weight& weight, const std::optional<at::Tensor>& bias,
                        const c10::intrusive_ptr<ActivationSource>& source,
                        const c10::intrusive_ptr<RowExchange>& output) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto coming = take_coming(source);
  // The whole leaf takes its rows at once, in the operands' type.
  const auto whole = leaves(x).linear;
  const bool is_whole = coming == nullptr && output == nullptr && product_type() == ProductType::OfOperands;
  if (whole != nullptr && is_whole && !weight.is_coded()) return whole(x, weight.values(), bias);
  if (is_widened_linear(x, weight)) {
    if (coming != nullptr) coming->wait_for_all();
    return send_rows(widened_linear(x, weight.values(), bias), output);
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

// The op with a graph; its saved tensors and gradients follow [Note: ways around autograd].
struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias,
                            const c10::intrusive_ptr<ActivationSource>& source,
                            const c10::intrusive_ptr<RowExchange>& output, const WeightForm& form) {
    save_activations(*ctx, {weight.requires_grad() && source == nullptr ? x : at::Tensor()},
                     {x.requires_grad() ? weight : at::Tensor()});
    keep_source(*ctx, source);
    count_reader(x, source);
    keep_exchange(*ctx, output);
    keep_product_type(*ctx);
    // Keeps the leaf itself, as the mark of direct gradients is on it.
    if (direct_gradient_type(weight)) ctx->saved_data["direct_weight"] = weight;
    ctx->saved_data["x_sizes"] = x.sizes().vec();
    ctx->saved_data["has_bias"] = bias.has_value();
    const ForwardOperands operands(x, weight);
    const Weight operand(weight, form);
    keep_form(*ctx, operand);
    at::Tensor y = forward_pass(x, operand, bias, source, output);
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
    // The products for the gradients of x and of weight share the cast of grad.
    E4m3Operand of_grad(grad);
    const LayerScales scales = kept_scales(*ctx);
    at::Tensor grad_x, grad_weight, grad_bias;
    if (ctx->needs_input_grad(0)) {
      E4m3Operand of_weight(saved[1], scales.weight);
      const E4m3OperandsScope shared(product_type(), {&of_grad, &of_weight});
      grad_x = input_gradient(rows, Weight(saved[1], kept_form(*ctx)), source);
      if (grad_x.defined()) grad_x = grad_x.view(ctx->saved_data["x_sizes"].toIntVector());
    }
    // If no gradient of x was made, nobody has waited for the rows of grad yet.
    if (rows.coming != nullptr) rows.coming->wait_for_all();
    const MemoryScope memory(MemoryCategory::Gradients);
    if (trains) {
      const at::Tensor x = flatten_rows(source != nullptr ? source->value() : saved[0]);
      keep_e4m3_scale(x, scales.x);
      // Other readers of the source multiply its value too, so its cast is shared among them.
      E4m3Operand of_x(x, scales.x);
      const bool is_shared = product_type() == ProductType::E4m3 && source != nullptr;
      const E4m3OperandsScope shared(product_type(),
                                     {&of_grad, is_shared ? &source->value_operand() : &of_x});
      const auto direct = ctx->saved_data.find("direct_weight");
      // The mark is looked up again: a hook may have been put on the parameter since the forward.
      if (direct != ctx->saved_data.end() && direct_gradient_type(direct->second.toTensor())) {
        add_product_to_gradient(direct->second.toTensor(), grad, x);
      } else {
        grad_weight = product(grad.t(), x);
      }
    }
    if (ctx->saved_data["has_bias"].toBool() && ctx->needs_input_grad(2)) grad_bias = grad.sum(0);
    return {grad_x, grad_weight, grad_bias, {}, {}, {}};
  }
};

}  // namespace

at::Tensor linear(const Activation& input, const Weight& weight, const std::optional<at::Tensor>& bias,
                  const c10::intrusive_ptr<RowExchange>& output) {
  const trace::Scope trace_scope("linear");
  const at::Tensor& x = input.value();
  const bool has_bias = bias.has_value() && bias->defined();
  const at::Tensor& typed = weight.is_coded() ? x : weight.values();  // a tensor of the weight's type
  check_operands(kName, {&x, &typed, has_bias ? &*bias : &x});
  TESSERA_CHECK_ARGUMENT(x.dim() > 0 && weight.stored().dim() == 2 && x.size(-1) == weight.size(1) &&
                             (x.scalar_type() == typed.scalar_type() || is_widened_linear(x, weight)),
                         "linear: shapes or types of x and weight");
  TESSERA_CHECK_ARGUMENT(
      !has_bias || (bias->dim() == 1 && bias->size(0) == weight.size(0) &&
                    (bias->scalar_type() == typed.scalar_type() || bias->scalar_type() == x.scalar_type())),
      "linear: shape or type of the bias");
  TESSERA_CHECK_ARGUMENT(output == nullptr || (x.dim() == 2 && !has_bias),
                         "linear: rows that go elsewhere are those of a matrix, without a bias");
  const std::optional<at::Tensor> used = has_bias ? bias : std::nullopt;
  if (!needs_graph({x, weight.stored(), has_bias ? *bias : at::Tensor()})) {
    if (!is_small_linear(x, weight)) return forward_pass(x, weight, used, input.source(), output);
    if (const auto coming = take_coming(input.source())) coming->wait_for_all();
    return send_rows(small_linear(x, weight, used), output);
  }
  TESSERA_CHECK_ARGUMENT(x.scalar_type() == typed.scalar_type(),
                         "linear: a gradient through weights of another type");
  return LinearFunction::apply(x, weight.stored(), used, input.source(), output, weight.form());
}

}  // namespace tessera::ops
