// A learning rate that falls when a metric no longer does.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/core/schedule_kind.h"

namespace tessera::optim {

// Of torch.optim.lr_scheduler.ReduceLROnPlateau, with its defaults and mode "min".
struct PlateauOptions {
  double factor = 0.1;
  int64_t patience = 10;  // metrics in a row that may be no better
  double threshold = 1e-4;
  PlateauMode mode = PlateauMode::Relative;  // of the threshold
  int64_t cooldown = 0;                      // metrics after a fall that are not counted
  double min_lr = 0.0;
};

// A function of the metrics so far.
struct Plateau {
  std::optional<double> best;
  int64_t num_bad = 0, cooldown_left = 0;
  double factor = 1.0;  // of the learning rate

  // Takes in a metric, of which less is better. `peak`: the learning rate at factor 1. A fall by 1e-8 or less
  // is none, as in PyTorch.
  void judge(const PlateauOptions& options, double peak, double metric);
};

}  // namespace tessera::optim
