#include "tessera/train/step/run_schedule.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "tessera/core/log.h"

namespace tessera::train {
namespace {

int64_t warmup_steps(const config::Recipe& recipe, int64_t total_steps) {
  const auto total = static_cast<double>(total_steps);
  int64_t steps = 0;
  if (recipe.warmup_steps.value_or(0) > 0) {
    steps = count_steps(*recipe.warmup_steps, total_steps);
  } else if (recipe.warmup_ratio) {
    steps = static_cast<int64_t>(*recipe.warmup_ratio * total);
  } else if (!recipe.warmup_steps) {
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

double peak_learning_rate(const config::Recipe& recipe, int64_t samples_per_step) {
  if (recipe.lr_scaling == config::LrScaling::None) return recipe.learning_rate;
  const double ratio = static_cast<double>(samples_per_step) / static_cast<double>(recipe.base_batch_size);
  return recipe.learning_rate * (recipe.lr_scaling == config::LrScaling::Linear ? ratio : std::sqrt(ratio));
}

optim::Schedule make_schedule(const config::Recipe& recipe, int64_t total_steps, int64_t samples_per_step) {
  optim::Schedule schedule;
  schedule.peak = peak_learning_rate(recipe, samples_per_step);
  schedule.total_steps = total_steps;
  schedule.kind = recipe.lr_scheduler;
  schedule.restart_steps = recipe.jagged_restart_steps;
  schedule.restart_warmup_steps = recipe.jagged_restart_warmup_steps;
  schedule.restart_anneal_steps = recipe.jagged_restart_anneal_steps;
  if (recipe.cosine_min_lr_ratio > 0.0) schedule.restart_min_ratio = recipe.cosine_min_lr_ratio;
  if (schedule.kind == ScheduleKind::Constant || schedule.kind == ScheduleKind::ReduceOnPlateau)
    return schedule;
  if (schedule.kind != ScheduleKind::Linear)
    schedule.min_ratio =
        recipe.lr_min > 0.0 ? std::min(1.0, recipe.lr_min / schedule.peak) : recipe.cosine_min_lr_ratio;
  schedule.constant_ratio = recipe.cosine_constant_lr_ratio;
  schedule.has_quadratic_warmup = recipe.lr_quadratic_warmup;
  schedule.cycles = recipe.lr_cycles;
  schedule.end = recipe.lr_end;
  schedule.power = recipe.lr_power;
  schedule.timescale = recipe.lr_timescale;
  schedule.decay_steps = count_steps(recipe.lr_decay_steps, total_steps);
  schedule.stable_steps = recipe.lr_stable_steps.value_or(-1);
  schedule.rise = recipe.lr_warmup_type;
  schedule.fall = recipe.lr_decay_type;
  schedule.div_factor = recipe.lr_div_factor;
  schedule.final_div_factor = recipe.lr_final_div_factor;
  schedule.range_steps = recipe.lr_range_test_step_size;
  schedule.range_rate = recipe.lr_range_test_step_rate;
  schedule.range_end = recipe.lr_range_test_max_lr;
  schedule.range_has_stairs = recipe.lr_range_test_staircase;
  if (schedule.kind == ScheduleKind::RangeTest) return schedule;  // which has no warm-up
  schedule.warmup_steps = warmup_steps(recipe, total_steps);
  if (schedule.warmup_steps > 0 && schedule.warmup_steps >= total_steps) note_unreached_peak(schedule);
  return schedule;
}

optim::PlateauOptions plateau_options(const config::Recipe& recipe) {
  return {recipe.lr_plateau_factor,         recipe.lr_plateau_patience, recipe.lr_plateau_threshold,
          recipe.lr_plateau_threshold_mode, recipe.lr_plateau_cooldown, recipe.lr_min};
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

bool is_evaluated(const config::Recipe& recipe, int64_t step, int64_t total_steps, int64_t steps_per_epoch,
                  bool ends_epoch) {
  return is_due({recipe.eval_strategy, recipe.eval_steps > 0.0 ? recipe.eval_steps : recipe.logging_steps,
                 recipe.eval_steps > 0.0 ? 0.0 : recipe.evals_per_epoch},
                step, total_steps, steps_per_epoch, ends_epoch);
}

bool is_saved(const config::Recipe& recipe, int64_t step, int64_t total_steps, int64_t steps_per_epoch,
              bool ends_epoch) {
  constexpr double kDefaultSteps = 500.0;
  return is_due({recipe.save_strategy, recipe.save_steps > 0.0 ? recipe.save_steps : kDefaultSteps,
                 recipe.save_steps > 0.0 ? 0.0 : recipe.saves_per_epoch},
                step, total_steps, steps_per_epoch, ends_epoch);
}

}  // namespace tessera::train
