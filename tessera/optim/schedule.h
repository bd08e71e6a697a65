// Learning-rate schedules: pure functions of the step.
#pragma once

#include <cstdint>

#include "tessera/core/schedule_kind.h"

namespace tessera::optim {

// A warm-up from 0 over `warmup_steps`, then the curve of the kind. The values are those of Transformers'
// get_*_schedule functions and, for OneCycle, of torch.optim.lr_scheduler.OneCycleLR; Rex is the reflected
// exponential of Chen et al., "REX: revisiting budgeted training with an improved schedule" (2021), which
// like the restarts below is one update ahead of the others, as in Axolotl. ReduceOnPlateau stays at the
// peak, of which Plateau gives a share.
struct Schedule {
  ScheduleKind kind = ScheduleKind::Cosine;
  double peak = 0.0;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  // Where Cosine, Linear, WarmupStableDecay and Rex end, as a share of the peak.
  double min_ratio = 0.0;
  // Of Cosine: the share of the steps after which it has come to its end; 0 = all.
  double constant_ratio = 0.0;
  bool has_quadratic_warmup = false;  // of Cosine
  // Waves of Cosine and of the fall of WarmupStableDecay (a half of one goes down once), or restarts; 0 = the
  // kind's own: 0.5, and 1 of CosineWithRestarts.
  double cycles = 0.0;
  // Of Polynomial: the learning rate at the end, and the exponent.
  double end = 1e-7, power = 1.0;
  int64_t timescale = 0;  // of InverseSqrt; 0 = warmup_steps, or 10,000 without any
  // Of WarmupStableDecay. stable_steps below 0: what the two others leave.
  int64_t decay_steps = 0, stable_steps = -1;
  RampKind rise = RampKind::Linear, fall = RampKind::Cosine;
  // Of OneCycle, which begins at peak / div_factor and ends at that / final_div_factor. Falls are bent like
  // Cosine.
  double div_factor = 25.0, final_div_factor = 1e4;
  // After each `restart_steps` (0 = never) the learning rate goes down to `restart_min_ratio` of the
  // schedule's over restart_anneal_steps and up again over restart_warmup_steps.
  int64_t restart_steps = 0, restart_warmup_steps = 10, restart_anneal_steps = 1;
  double restart_min_ratio = 0.001;

  // The learning rate of update `step`, 0-based.
  double at(int64_t step) const;

 private:
  double warmup_at(int64_t step) const;
  double factor_at(int64_t step) const;
  double cosine_at(int64_t step) const;
  double stable_decay_at(int64_t step) const;
  double one_cycle_at(int64_t step) const;
  double restart_at(int64_t step) const;
};

}  // namespace tessera::optim
