#include "tessera/optim/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/ops/sum_of_squares.h"

namespace tessera::optim {

GradientNorm global_gradient_norm(const std::vector<NamedGradient>& gradients, at::Device device) {
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions(device).dtype(at::kDouble);
  // One sum for each way of being cut, in the order in which they come.
  std::vector<std::pair<std::vector<comm::Communicator*>, at::Tensor>> sums;
  std::vector<const NamedGradient*> counted;
  std::vector<at::Tensor> values;
  for (const NamedGradient& named : gradients) {
    if (!named.gradient.defined() || named.gradient.numel() == 0) continue;
    counted.push_back(&named);
    values.push_back(named.gradient);
  }
  const std::vector<at::Tensor> squares = ops::sums_of_squares(values);
  size_t next = 0;
  for (const NamedGradient& named : gradients) {
    auto sum =
        std::find_if(sums.begin(), sums.end(), [&](const auto& s) { return s.first == named.cut_over; });
    if (sum == sums.end()) sum = sums.insert(sum, {named.cut_over, at::zeros({1}, options)});
    if (next < counted.size() && counted[next] == &named) sum->second.add_(squares[next++]);
  }
  const at::Tensor total = at::zeros({1}, options);
  std::vector<comm::Communicator*> groups;
  for (const auto& [cut_over, sum] : sums) {
    for (comm::Communicator* group : cut_over) {
      group->all_reduce(sum);
      if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
    }
    total.add_(sum);
  }
  GradientNorm result;
  result.norm = std::sqrt(total.item<double>());
  if (std::isfinite(result.norm)) return result;
  // Every rank takes this branch, since the total is the same on all.
  for (size_t i = 0; i < squares.size() && !result.is_bad_here; ++i) {
    if (std::isfinite(squares[i].item<double>())) continue;
    result.is_bad_here = true;
    result.bad_name = counted[i]->name;
  }
  for (comm::Communicator* group : groups) {
    for (const std::string& name : group->all_gather_string(result.bad_name)) {
      if (name.empty()) continue;
      result.bad_name = name;
      break;
    }
  }
  return result;
}

GradientNorm global_gradient_norm(const parallel::ShardedModel& model) {
  std::vector<NamedGradient> gradients;
  for (const parallel::ShardedParameter& parameter : model.parameters()) {
    if (!parameter.requires_grad) continue;
    NamedGradient& named = gradients.emplace_back();
    named.name = parameter.name;
    named.gradient = parameter.tile.grad();
    for (size_t a = 0; a < parameter.axes.size(); ++a) {
      comm::Communicator* const group = parameter.axes[a].group.get();
      const parallel::Placement& placement = parameter.layout.axes()[a].placement;
      const bool is_held = placement.kind == parallel::Placement::Kind::Held;
      const bool is_cut = is_held || placement.kind == parallel::Placement::Kind::Shard;
      if (is_cut && group->size() > 1) named.cut_over.push_back(group);
      // Of several that hold it, one counts.
      if (is_held && placement.holders.front() != group->rank()) named.gradient = at::Tensor();
    }
  }
  return global_gradient_norm(gradients, model.device());
}

double clip_factor(double norm, double max_norm) {
  if (max_norm <= 0.0) return 1.0;
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace tessera::optim
