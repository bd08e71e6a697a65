#include "tessera/nn/grouped_experts.h"

#include <algorithm>
#include <functional>

#include "tessera/ops/grouped_linear.h"

namespace tessera::nn {
namespace {

constexpr int64_t kFewestRows = 16;

using Projection = std::shared_ptr<Linear> MLP::*;

bool is_plain(const Linear& linear, const at::Tensor& rows) {
  return linear.parallel() == nullptr && linear.adapter() == nullptr && !linear.bias.defined() &&
         !linear.form() && linear.product_type() == ops::ProductType::OfOperands &&
         ops::has_grouped_products(rows, linear.weight);
}

std::vector<at::Tensor> weights_of(const Experts& experts, Projection projection) {
  std::vector<at::Tensor> weights;
  for (const auto& expert : experts) weights.push_back(((*expert).*projection)->weight);
  return weights;
}

at::Tensor project(const ops::Activation& x, const at::Tensor& ends, const Experts& experts,
                   Projection projection) {
  return ops::grouped_linear(x, ends, weights_of(experts, projection));
}

bool lie_in_line(const Experts& experts) {
  const auto lies = [&](Projection projection) { return ops::lie_in_line(weights_of(experts, projection)); };
  return lies(&MLP::up_proj) && lies(&MLP::down_proj) &&
         (experts.front()->gate_proj == nullptr || lies(&MLP::gate_proj));
}

}  // namespace

bool runs_grouped(const at::Tensor& rows, const Experts& experts) {
  const bool are_plain = std::ranges::all_of(experts, [&](const std::shared_ptr<MLP>& expert) {
    return expert->parallel() == nullptr && expert->up_proj != nullptr && is_plain(*expert->up_proj, rows) &&
           is_plain(*expert->down_proj, rows) &&
           (expert->gate_proj == nullptr || is_plain(*expert->gate_proj, rows));
  });
  return are_plain && (rows.size(0) >= kFewestRows * std::ssize(experts) || lie_in_line(experts));
}

at::Tensor run_grouped(const at::Tensor& rows, const at::Tensor& ends, const Experts& experts) {
  const MLP& first = *experts.front();
  const bool has_gate = first.gate_proj != nullptr;
  const auto inputs = [=] {
    const auto make = [&](Projection projection) { return project(rows, ends, experts, projection); };
    return has_gate ? ops::MlpInputs{make(&MLP::gate_proj), make(&MLP::up_proj)}
                    : ops::MlpInputs{make(&MLP::up_proj), {}};
  };
  std::function<ops::MlpInputs()> again;
  if (first.recomputes_hidden()) again = inputs;
  const ops::Activation hidden = ops::mlp_activation(first.activation(), inputs(), again);
  return project(hidden, ends, experts, &MLP::down_proj);
}

}  // namespace tessera::nn
