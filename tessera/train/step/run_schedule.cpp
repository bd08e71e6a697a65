#include "tessera/train/step/run_schedule.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "tessera/core/log.h"

namespace tessera::train {
namespace {

int64_t warmup_steps(const config::ScheduleConfig& keys, int64_t total_steps) {
  const auto total = static_cast<double>(total_steps);
  int64_t steps = 0;
  if (keys.warmup_steps.value_or(0) > 0) {
    steps = count_steps(*keys.warmup_steps, total_steps);
  } else if (keys.warmup_ratio) {
    steps = static_cast<int64_t>(*keys.warmup_ratio * total);
  } else if (!keys.warmup_steps) {
    steps = std::min<int64_t>(static_cast<int64_t>(0.03 * total), 100);
  }
  return steps == 1 ? 2 : steps;
}

void note_unreached_peak(const optim::Schedule& schedule) {
  char rates[96];
  std::snprintf(rates, sizeof rates, "never reaches %g, its highest is %g", schedule.peak,
                schedule.at(schedule.total_steps - 1));
  log::warn("the warm-up of " + std::to_string(schedule.warmup_steps) + " steps is longer than the run of " +
            std::to_string(schedule.total_steps) + ": the learning rate " + rates);
}

}  // namespace

int64_t count_steps(double steps_or_share, int64_t total_steps) {
  if (steps_or_share >= 1.0) return static_cast<int64_t>(steps_or_share);
  return static_cast<int64_t>(std::ceil(steps_or_share * static_cast<double>(total_steps)));
}

double peak_learning_rate(const config::ScheduleConfig& keys, int64_t samples_per_step) {
  if (keys.lr_scaling == config::LrScaling::None) return keys.learning_rate;
  const double ratio = static_cast<double>(samples_per_step) / static_cast<double>(keys.base_batch_size);
  return keys.learning_rate * (keys.lr_scaling == config::LrScaling::Linear ? ratio : std::sqrt(ratio));
}

optim::Schedule make_schedule(const config::ScheduleConfig& keys, int64_t total_steps,
                              int64_t samples_per_step) {
  optim::Schedule schedule;
  schedule.peak = peak_learning_rate(keys, samples_per_step);
  schedule.total_steps = total_steps;
  schedule.kind = keys.lr_scheduler;
  schedule.restart_steps = keys.jagged_restart_steps;
  schedule.restart_warmup_steps = keys.jagged_restart_warmup_steps;
  schedule.restart_anneal_steps = keys.jagged_restart_anneal_steps;
  if (keys.cosine_min_lr_ratio > 0.0) schedule.restart_min_ratio = keys.cosine_min_lr_ratio;
  if (schedule.kind == ScheduleKind::Constant || schedule.kind == ScheduleKind::ReduceOnPlateau)
    return schedule;
  if (schedule.kind != ScheduleKind::Linear)
    schedule.min_ratio =
        keys.lr_min > 0.0 ? std::min(1.0, keys.lr_min / schedule.peak) : keys.cosine_min_lr_ratio;
  schedule.constant_ratio = keys.cosine_constant_lr_ratio;
  schedule.has_quadratic_warmup = keys.lr_quadratic_warmup;
  schedule.cycles = keys.lr_cycles;
  schedule.end = keys.lr_end;
  schedule.power = keys.lr_power;
  schedule.timescale = keys.lr_timescale;
  schedule.decay_steps = count_steps(keys.lr_decay_steps, total_steps);
  schedule.stable_steps = keys.lr_stable_steps.value_or(-1);
  schedule.rise = keys.lr_warmup_type;
  schedule.fall = keys.lr_decay_type;
  schedule.div_factor = keys.lr_div_factor;
  schedule.final_div_factor = keys.lr_final_div_factor;
  schedule.range_steps = keys.lr_range_test_step_size;
  schedule.range_rate = keys.lr_range_test_step_rate;
  schedule.range_end = keys.lr_range_test_max_lr;
  schedule.range_has_stairs = keys.lr_range_test_staircase;
  if (schedule.kind == ScheduleKind::RangeTest) return schedule;  // which has no warm-up
  schedule.warmup_steps = warmup_steps(keys, total_steps);
  if (schedule.warmup_steps > 0 && schedule.warmup_steps >= total_steps) note_unreached_peak(schedule);
  return schedule;
}

optim::PlateauOptions plateau_options(const config::ScheduleConfig& keys) {
  return {keys.lr_plateau_factor,         keys.lr_plateau_patience, keys.lr_plateau_threshold,
          keys.lr_plateau_threshold_mode, keys.lr_plateau_cooldown, keys.lr_min};
}

namespace {

// How often something is done. `steps` below 1 is a share of the run's; `per_epoch` above 0 counts in its
// place.
struct Frequency {
  config::Cadence cadence;
  double steps, per_epoch;
};

bool is_due(const Frequency& frequency, int64_t step, int64_t total_steps, int64_t steps_per_epoch,
            bool ends_epoch) {
  if (frequency.cadence == config::Cadence::No) return false;
  if (step >= total_steps) return true;
  if (frequency.cadence == config::Cadence::Epoch) return ends_epoch;
  if (frequency.cadence == config::Cadence::Best) return false;
  int64_t every = 0;
  if (frequency.per_epoch > 0.0) {
    const double steps = std::ceil(static_cast<double>(steps_per_epoch) / frequency.per_epoch);
    every = static_cast<int64_t>(std::min(steps, 1e15));
  } else {
    every = count_steps(frequency.steps, total_steps);
  }
  return step % std::max<int64_t>(every, 1) == 0;
}

}  // namespace

bool is_evaluated(const config::EvaluationConfig& keys, int64_t step, int64_t total_steps,
                  int64_t steps_per_epoch, bool ends_epoch) {
  return is_due({keys.eval_strategy, keys.eval_steps > 0.0 ? keys.eval_steps : keys.logging_steps,
                 keys.eval_steps > 0.0 ? 0.0 : keys.evals_per_epoch},
                step, total_steps, steps_per_epoch, ends_epoch);
}

bool is_saved(const config::CheckpointConfig& keys, int64_t step, int64_t total_steps,
              int64_t steps_per_epoch, bool ends_epoch) {
  constexpr double kDefaultSteps = 500.0;
  return is_due({keys.save_strategy, keys.save_steps > 0.0 ? keys.save_steps : kDefaultSteps,
                 keys.save_steps > 0.0 ? 0.0 : keys.saves_per_epoch},
                step, total_steps, steps_per_epoch, ends_epoch);
}

}  // namespace tessera::train
