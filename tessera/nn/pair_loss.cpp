#include "tessera/nn/pair_loss.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace tessera::nn {

at::Tensor pair_losses(const at::Tensor& rewards, const at::Tensor& numbers, const at::Tensor& margins,
                       const PairTerms& terms, const ops::ChangeInPlace& sum, const at::Tensor& statistics) {
  at::Tensor all = at::zeros_like(margins, rewards.options()).index_copy(0, numbers, rewards);
  if (sum) {
    const auto summed = [sum](const at::Tensor& x) {
      const at::Tensor y = x.clone(at::MemoryFormat::Contiguous);
      sum(y);
      return y;
    };
    all = ops::exchange_value(all, summed, summed);
  }
  const at::Tensor pairs = all.view({-1, 2}), better = pairs.select(1, 0), other = pairs.select(1, 1);
  const at::Tensor difference = better - other;
  at::Tensor losses = -at::log_sigmoid(difference - margins.view({-1, 2}).select(1, 0));
  if (terms.center != 0.0) losses = losses + terms.center * (better + other).square();
  if (statistics.defined()) {
    const at::NoGradGuard no_grad;
    const at::Tensor own = numbers.masked_select(numbers.remainder(2).eq(0)).floor_divide(2);
    const at::Tensor d = difference.index_select(0, own).to(at::kDouble);
    const at::Tensor means = (better + other).index_select(0, own).to(at::kDouble) / 2.0;
    statistics.add_(at::stack({at::ones_like(d), d.gt(0.0).to(at::kDouble), d, means}).sum(1));
  }
  return losses.index_select(0, numbers.floor_divide(2));
}

NamedMetrics pair_metrics(std::span<const double> statistics) {
  const double pairs = std::max(1.0, statistics[0]);
  return {{"accuracy", statistics[1] / pairs},
          {"margin", statistics[2] / pairs},
          {"mean_reward", statistics[3] / pairs}};
}

}  // namespace tessera::nn
