#include "tessera/optim/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/ops/sum_of_squares.h"

namespace tessera::optim {

GradientNorm global_gradient_norm(const std::vector<NamedGradient>& gradients,
                                  comm::Communicator& shard_group) {
  const at::NoGradGuard no_grad;
  double sum = 0.0;
  std::string bad_name;
  for (const NamedGradient& named : gradients) {
    if (!named.gradient.defined() || named.gradient.numel() == 0) continue;
    const double squares = ops::sum_of_squares(named.gradient);
    if (!std::isfinite(squares) && bad_name.empty()) bad_name = named.name;
    sum += squares;
  }
  const at::Tensor total = at::full({1}, sum, at::kDouble);
  shard_group.all_reduce(total);
  GradientNorm result;
  result.norm = std::sqrt(total.item<double>());
  if (std::isfinite(result.norm)) return result;
  // Every rank takes this branch, since the total is the same on all.
  const auto names = shard_group.all_gather_string(bad_name);
  for (size_t rank = 0; rank < names.size(); ++rank) {
    if (names[rank].empty()) continue;
    result.bad_rank = static_cast<int64_t>(rank);
    result.bad_name = names[rank];
    break;
  }
  return result;
}

double clip_factor(double norm, double max_norm) {
  if (max_norm <= 0.0) return 1.0;
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace tessera::optim
