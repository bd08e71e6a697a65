#include "tessera/optim/gradient_norm.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "tessera/ops/sum_of_squares.h"

namespace tessera::optim {

namespace {

// `squares`: of gradients that are gone, for each trained tile; empty where all are there.
std::vector<NamedGradient> trained_tiles(const parallel::ShardedModel& model,
                                         const std::vector<at::Tensor>& squares) {
  std::vector<NamedGradient> gradients;
  for (const parallel::ShardedParameter& parameter : model.parameters()) {
    if (!parameter.requires_grad) continue;
    NamedGradient& named = gradients.emplace_back();
    named.name = parameter.name;
    if (squares.empty()) {
      named.gradient = parameter.tile.grad();
    } else {
      named.squares = squares[gradients.size() - 1];
    }
    for (size_t a = 0; a < parameter.axes.size(); ++a) {
      comm::Communicator* const group = parameter.axes[a].group.get();
      const parallel::Placement& placement = parameter.layout.axes()[a].placement;
      const bool is_held = placement.kind == parallel::Placement::Kind::Held;
      const bool is_cut = is_held || placement.kind == parallel::Placement::Kind::Shard;
      if (is_cut && group->size() > 1) named.cut_over.push_back(group);
      // Several ranks may hold the same tile; only the tile of the first holder counts.
      if (is_held && placement.holders.front() != group->rank())
        named.gradient = named.squares = at::Tensor();
    }
  }
  return gradients;
}

}  // namespace

PendingNorm::PendingNorm(const parallel::ShardedModel& model)
    : PendingNorm(trained_tiles(model, {}), model.device()) {}

PendingNorm::PendingNorm(const parallel::ShardedModel& model, const std::vector<at::Tensor>& squares)
    : PendingNorm(trained_tiles(model, squares), model.device()) {}

PendingNorm::PendingNorm(std::vector<NamedGradient> gradients, at::Device device)
    : gradients_(std::move(gradients)) {
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions(device).dtype(at::kDouble);
  // Gradients that are cut over the same groups share one sum, so that they share its all-reduces. The sums
  // stand in the order in which the gradients first need them, which is the same on all ranks.
  std::vector<std::pair<std::vector<comm::Communicator*>, at::Tensor>> sums;
  std::vector<at::Tensor> values;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const auto& [name, gradient, cut, known] = gradients_[i];
    const bool has_elements = gradient.defined() && gradient.numel() > 0;
    if (has_elements || known.defined()) counted_.push_back(i);
    if (has_elements) values.push_back(gradient);
  }
  const std::vector<at::Tensor> measured = ops::sums_of_squares(values);
  auto next_measured = measured.begin();
  for (const size_t i : counted_)
    squares_.push_back(gradients_[i].squares.defined() ? gradients_[i].squares : *next_measured++);
  // Gradients without elements on this rank make their sum, too: each sum is all-reduced, so all ranks need
  // all of them.
  size_t next = 0;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const auto& cut_over = gradients_[i].cut_over;
    auto sum = std::find_if(sums.begin(), sums.end(), [&](const auto& s) { return s.first == cut_over; });
    if (sum == sums.end()) sum = sums.insert(sum, {cut_over, at::zeros({1}, options)});
    if (next < counted_.size() && counted_[next] == i) sum->second.add_(squares_[next++]);
  }
  total_ = at::zeros({1}, options);
  for (const auto& [cut_over, sum] : sums) {
    for (comm::Communicator* group : cut_over) {
      group->all_reduce(sum);
      if (std::find(groups_.begin(), groups_.end(), group) == groups_.end()) groups_.push_back(group);
    }
    total_.add_(sum);
  }
}

GradientNorm PendingNorm::finish(double sum_of_squares) const {
  GradientNorm result;
  result.norm = std::sqrt(sum_of_squares);
  if (std::isfinite(result.norm)) return result;
  // Every rank takes this branch, since the total is the same on all.
  for (size_t i = 0; i < squares_.size() && !result.is_bad_here; ++i) {
    if (std::isfinite(squares_[i].item<double>())) continue;
    result.is_bad_here = true;
    result.bad_name = gradients_[counted_[i]].name;
  }
  // The name travels along one group after another, so that in the end all ranks have the same one.
  for (comm::Communicator* group : groups_) {
    for (const std::string& name : group->all_gather_string(result.bad_name)) {
      if (name.empty()) continue;
      result.bad_name = name;
      break;
    }
  }
  return result;
}

GradientNorm global_gradient_norm(const std::vector<NamedGradient>& gradients, at::Device device) {
  const PendingNorm norm(gradients, device);
  return norm.finish(norm.sum_of_squares().item<double>());
}

GradientNorm global_gradient_norm(const parallel::ShardedModel& model) {
  const PendingNorm norm(model);
  return norm.finish(norm.sum_of_squares().item<double>());
}

double clip_factor(double norm, double max_norm) {
  if (max_norm <= 0.0) return 1.0;
  return std::min(1.0, max_norm / (norm + 1e-6));
}

at::Tensor clip_factor(const at::Tensor& norm, double max_norm) {
  if (max_norm <= 0.0) return at::ones_like(norm);
  return at::full_like(norm, max_norm).div_(norm + 1e-6).clamp_max_(1.0);
}

}  // namespace tessera::optim
