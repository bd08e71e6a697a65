// The loss of pairs of texts of which one is better: Bradley and Terry's, as TRL's RewardTrainer has it.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/core/classification.h"
#include "tessera/nn/sequence.h"
#include "tessera/ops/pass_through.h"

namespace tessera::nn {

struct PairTerms {
  double center = 0.0;  // weight of the squared sum of the two rewards
};

// Returns the losses of labelled positions, [labels]: at both texts of a pair
//   -log sigmoid(better - other - margin) + center (better + other)^2,
// so that the mean over positions is that over pairs. `rewards`: [labels], those of this batch's positions;
// `numbers`: [labels] int64, where each position stands among those of all texts, of which every even one is
// the better text of a pair and the next one the other; `margins`: [all texts], by these numbers. All lie on
// the device of the rewards. Where other ranks have texts too, `sum` sums a tensor over all, in place, in the
// forward and in the backward, which are then collective. Adds to `statistics`, if it is defined, for the
// better texts of this batch: pairs, those in the right order, and the sums of the rewards' differences and
// means.
at::Tensor pair_losses(const at::Tensor& rewards, const at::Tensor& numbers, const at::Tensor& margins,
                       const PairTerms& terms, const ops::ChangeInPlace& sum, const at::Tensor& statistics);

inline constexpr int64_t kPairStatistics = 4;
// Returns accuracy, margin and mean_reward of these sums.
NamedMetrics pair_metrics(std::span<const double> statistics);

}  // namespace tessera::nn
