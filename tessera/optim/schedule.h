// Learning-rate schedules: pure functions of the step.
#pragma once

#include <cstdint>

namespace tessera::optim {

enum class ScheduleKind { Constant, Linear, Cosine };

// Warm-up from 0 over `warmup_steps`, then the curve down to `min_ratio` at `total_steps`. The values are
// those of Transformers' get_*_schedule_with_warmup: step s (from 0) is the s-th update.
struct Schedule {
  ScheduleKind kind = ScheduleKind::Cosine;
  double peak = 0.0;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  double min_ratio = 0.0;

  // The learning rate of update `step`, 0-based.
  double at(int64_t step) const;
};

}  // namespace tessera::optim
