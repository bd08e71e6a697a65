#include "tessera/optim/plateau.h"

#include <algorithm>

namespace tessera::optim {

void Plateau::judge(const PlateauOptions& options, double peak, double metric) {
  constexpr double kLeastFall = 1e-8;
  const auto bound = [&] {
    return options.mode == PlateauMode::Relative ? *best * (1.0 - options.threshold)
                                                 : *best - options.threshold;
  };
  if (!best || metric < bound()) {
    best = metric;
    num_bad = 0;
  } else {
    ++num_bad;
  }
  if (cooldown_left > 0) {
    --cooldown_left;
    num_bad = 0;
  }
  if (num_bad <= options.patience) return;
  const double lr = peak * factor, lower = std::max(lr * options.factor, options.min_lr);
  if (lr - lower > kLeastFall) factor = lower / peak;
  cooldown_left = options.cooldown;
  num_bad = 0;
}

}  // namespace tessera::optim
