// Learning-rate schedules: pure functions of the step.
#pragma once

#include <cstdint>

#include "tessera/core/schedule_kind.h"

namespace tessera::optim {

// A learning rate that warms up from 0 over `warmup_steps` and then follows the curve of its kind. The values
// are those of Transformers' get_*_schedule functions and, for OneCycle, of
// torch.optim.lr_scheduler.OneCycleLR. Rex is the reflected exponential of Chen et al., "REX: revisiting
// budgeted training with an improved schedule" (2021); like the restarts below it is one update ahead of the
// others, as in Axolotl. WarmupLr, WarmupDecayLr and WarmupCosineLr are those of DeepSpeed's
// runtime/lr_schedules.py; DeepSpeed sets a rate only after the update before it, so the first two rates are
// those of the warm-up's beginning. ReduceOnPlateau stays at the peak, which Plateau::factor then lowers.
// RangeTest rises from `peak` on without a warm-up: that of DeepSpeed's LRRangeTest (Smith, "A disciplined
// approach to neural network hyper-parameters", 2018), or geometrically.
struct Schedule {
  ScheduleKind kind = ScheduleKind::Cosine;
  double peak = 0.0;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  // For Cosine, Linear, WarmupStableDecay, Rex and WarmupCosineLr: the end of the curve, as a share of the
  // peak.
  double min_ratio = 0.0;
  // For Cosine: the share of the steps after which the curve has come to its end; 0 = all steps.
  double constant_ratio = 0.0;
  bool has_quadratic_warmup = false;  // for Cosine
  // For Cosine and the fall of WarmupStableDecay: the number of waves, of which half a wave goes down once.
  // For CosineWithRestarts: the number of falls. 0 = the default of the kind: 0.5, and 1 for
  // CosineWithRestarts.
  double cycles = 0.0;
  // For Polynomial: the learning rate at the end, and the exponent.
  double end = 1e-7, power = 1.0;
  int64_t timescale = 0;  // for InverseSqrt; 0 = warmup_steps, or 10,000 without a warm-up
  // For WarmupStableDecay; `rise` also for those of DeepSpeed, which take Linear and Log. stable_steps below
  // 0 means all steps that warm-up and decay leave.
  int64_t decay_steps = 0, stable_steps = -1;
  RampKind rise = RampKind::Linear, fall = RampKind::Cosine;
  // For OneCycle, which begins at peak / div_factor and ends at this value / final_div_factor. Its rise and
  // its fall are half waves of a cosine.
  double div_factor = 25.0, final_div_factor = 1e4;
  // For RangeTest: update k has peak x (1 + range_rate x k / range_steps), of which the quotient is rounded
  // down with range_has_stairs. With range_end above 0, rates rise to that by equal factors instead, up to
  // the last step.
  int64_t range_steps = 2000;
  double range_rate = 1.0, range_end = 0.0;
  bool range_has_stairs = false;
  // After every `restart_steps` steps (0 = never) the learning rate goes down to the share
  // `restart_min_ratio` of the schedule's within restart_anneal_steps, and up again within
  // restart_warmup_steps.
  int64_t restart_steps = 0, restart_warmup_steps = 10, restart_anneal_steps = 1;
  double restart_min_ratio = 0.001;

  // Returns the learning rate of update `step`, 0-based.
  double at(int64_t step) const;

 private:
  double warmup_at(int64_t step) const;
  double factor_at(int64_t step) const;
  double cosine_at(int64_t step) const;
  double stable_decay_at(int64_t step) const;
  double one_cycle_at(int64_t step) const;
  double deepspeed_at(int64_t step) const;
  double range_at(int64_t step) const;
  double restart_at(int64_t step) const;
};

}  // namespace tessera::optim
