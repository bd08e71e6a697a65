#include "tessera/ops/grouped_linear.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/trace.h"
#include "tessera/device/device.h"
#include "tessera/device/memory_scope.h"
#include "tessera/ops/direct_gradient.h"
#include "tessera/ops/leaf.h"
#include "tessera/ops/saved_activation.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kGroupedLinear = "grouped_linear";
// Widths are multiples of this: the units read 16 bytes at a time.
constexpr int64_t kWidthUnit = 8;

at::Tensor multiply_groups(const at::Tensor& x, const at::Tensor& weights, const at::Tensor& ends) {
  return leaves(x).grouped_product(x.contiguous(), weights, ends);
}

// Returns the distance from one matrix to the next in elements, if all of them lie at equal distances in one
// piece of memory.
std::optional<int64_t> distance_in_line(at::TensorList weights) {
  const at::Tensor& first = weights[0];
  constexpr int64_t kAlignment = 16;  // of each matrix, in bytes
  const int64_t begin = first.storage_offset(),
                distance = weights.size() > 1 ? weights[1].storage_offset() - begin : first.numel();
  const bool are_aligned = distance * first.element_size() % kAlignment == 0 &&
                           reinterpret_cast<uintptr_t>(first.const_data_ptr()) % kAlignment == 0;
  if (distance < first.numel() || !are_aligned) return std::nullopt;
  for (size_t group = 0; group < weights.size(); ++group) {
    const at::Tensor& weight = weights[group];
    const bool is_there = weight.is_alias_of(first) && weight.is_contiguous() &&
                          weight.sizes() == first.sizes() &&
                          weight.storage_offset() == begin + static_cast<int64_t>(group) * distance;
    if (!is_there) return std::nullopt;
  }
  return distance;
}

// Returns the weights as one tensor [groups, out, in]: a view if they lie in line, else a copy.
at::Tensor as_one(at::TensorList weights) {
  const auto distance = distance_in_line(weights);
  if (!distance) return at::stack(weights);
  const at::Tensor& first = weights[0];
  return first.as_strided({std::ssize(weights), first.size(0), first.size(1)}, {*distance, first.size(1), 1});
}

struct GroupedLinearFunction : torch::autograd::Function<GroupedLinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& ends,
                            const c10::intrusive_ptr<ActivationSource>& source, at::TensorList weights) {
    const bool trains =
        std::ranges::any_of(weights, [](const at::Tensor& weight) { return weight.requires_grad(); });
    std::vector<at::Tensor> others = {ends};
    others.insert(others.end(), weights.begin(), weights.end());
    save_activations(*ctx, {trains && source == nullptr ? x : at::Tensor()}, others);
    keep_source(*ctx, source);
    // Keeps the leaves themselves, as the marks of direct gradients are on them and not on saved variables.
    if (trains) ctx->saved_data["leaves"] = weights.vec();
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return multiply_groups(x, as_one(weights).transpose(1, 2), ends);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward(kGroupedLinear);
    const auto saved = take_activations(*ctx);
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto source = take_source(*ctx);
    const at::Tensor grad = grads[0].contiguous();
    const at::Tensor& ends = saved[1];
    const std::vector<at::Tensor> weights(saved.begin() + 2, saved.end());
    variable_list gradients(3 + weights.size());
    if (ctx->needs_input_grad(0)) gradients[0] = multiply_groups(grad, as_one(weights), ends);
    // needs_input_grad() counts the tensors among the arguments alone: x, ends and the weights, without the
    // source.
    const auto needs = [&](size_t group) { return ctx->needs_input_grad(2 + group); };
    bool trains = false;
    for (size_t group = 0; group < weights.size(); ++group) trains = trains || needs(group);
    if (!trains) return gradients;
    const MemoryScope memory(MemoryCategory::Gradients);
    const at::Tensor x = source != nullptr ? source->value() : saved[0];
    const auto of_weights = leaves(x).grouped_product(grad.t(), x.contiguous(), ends).unbind();
    const auto parameters = ctx->saved_data["leaves"].toTensorVector();
    for (size_t group = 0; group < weights.size(); ++group) {
      if (!needs(group)) continue;
      if (direct_gradient_type(parameters[group])) {
        add_to_gradient(parameters[group], of_weights[group]);
      } else {
        gradients[3 + group] = of_weights[group];
      }
    }
    return gradients;
  }
};

}  // namespace

bool has_grouped_products(const at::Tensor& x, const at::Tensor& weight) {
  if (leaves(x).grouped_product == nullptr) return false;
  if (x.scalar_type() != at::kBFloat16 || weight.scalar_type() != at::kBFloat16) return false;
  if (weight.size(0) % kWidthUnit != 0 || weight.size(1) % kWidthUnit != 0) return false;
  return !x.is_cuda() || has_capability(x.device(), 9, 0);
}

bool lie_in_line(at::TensorList weights) { return distance_in_line(weights).has_value(); }

at::Tensor grouped_linear(const Activation& input, const at::Tensor& ends,
                          const std::vector<at::Tensor>& weights) {
  const trace::Scope trace_scope(kGroupedLinear);
  const at::Tensor& x = input.value();
  TESSERA_CHECK_ARGUMENT(x.dim() == 2 && !weights.empty() && ends.scalar_type() == at::kInt &&
                             ends.dim() == 1 && ends.size(0) == std::ssize(weights),
                         "grouped_linear: rows, and an end for each group");
  for (const at::Tensor& weight : weights) {
    TESSERA_CHECK_ARGUMENT(weight.sizes() == weights[0].sizes() && weight.size(1) == x.size(1) &&
                               has_grouped_products(x, weight),
                           "grouped_linear: shapes or types of x and weights");
  }
  const auto& source = input.source();
  TESSERA_CHECK_ARGUMENT(source == nullptr || !source->collects_gradient(),
                         "grouped_linear: a source that collects gradients");
  const bool has_graph =
      needs_graph({x}) || std::ranges::any_of(weights, [](const at::Tensor& w) { return needs_graph({w}); });
  if (!has_graph) return multiply_groups(x, as_one(weights).transpose(1, 2), ends);
  return GroupedLinearFunction::apply(x, ends, source, at::TensorList(weights));
}

}  // namespace tessera::ops
