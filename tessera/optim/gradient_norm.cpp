#include "tessera/optim/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace tessera::optim {
namespace {

// In pieces whose sums keep float32's precision: one sum over millions of elements keeps four digits, and
// others with every cut of the tensor. The pieces do not depend on the number of threads.
double sum_of_squares(const at::Tensor& gradient) {
  constexpr int64_t kPiece = int64_t{1} << 17;
  const at::Tensor flat = gradient.reshape({-1});
  std::vector<double> sums(static_cast<size_t>((flat.numel() + kPiece - 1) / kPiece));
  at::parallel_for(0, static_cast<int64_t>(sums.size()), 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;
    for (int64_t i = begin; i < end; ++i) {
      const at::Tensor piece = flat.narrow(0, i * kPiece, std::min(kPiece, flat.numel() - i * kPiece));
      const double norm = at::linalg_vector_norm(piece).item<double>();
      sums[i] = norm * norm;
    }
  });
  double sum = 0.0;
  for (const double part : sums) sum += part;
  return sum;
}

}  // namespace

GradientNorm global_gradient_norm(const std::vector<NamedGradient>& gradients,
                                  comm::Communicator& shard_group) {
  const at::NoGradGuard no_grad;
  double sum = 0.0;
  std::string bad_name;
  for (const NamedGradient& named : gradients) {
    if (!named.gradient.defined() || named.gradient.numel() == 0) continue;
    const double squares = sum_of_squares(named.gradient.detach());
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
