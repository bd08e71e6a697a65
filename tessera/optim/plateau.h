// Lowers the learning rate when a metric no longer falls.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/core/schedule_kind.h"

namespace tessera::optim {

// Options of torch.optim.lr_scheduler.ReduceLROnPlateau, with its defaults, for mode "min".
struct PlateauOptions {
  double factor = 0.1;
  int64_t patience = 10;  // metrics in a row that may be no better than the best
  double threshold = 1e-4;
  PlateauMode mode = PlateauMode::Relative;  // how `threshold` is meant
  int64_t cooldown = 0;                      // metrics after a cut of the rate that are ignored
  double min_lr = 0.0;
};

// State of the rule, which is a function of the metrics so far.
struct Plateau {
  std::optional<double> best;  // the last metric that was better than the ones before
  int64_t num_bad = 0, cooldown_left = 0;
  double factor = 1.0;  // of the learning rate; falls

  // Takes in a metric, which is better the lower it is. `peak` is the learning rate at factor 1. The learning
  // rate does not fall where it would fall by 1e-8 or less, as in PyTorch.
  void judge(const PlateauOptions& options, double peak, double metric);
};

}  // namespace tessera::optim
