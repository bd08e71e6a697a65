#include <algorithm>
#include <string>
#include <vector>

#include "tessera/config/rules.h"

namespace tessera::config {
namespace {

// A key that only some schedules read.
struct ScheduleKey {
  const char* key;
  bool is_changed;
  std::vector<ScheduleKind> readers;
  const char* names;  // of the readers
};

std::vector<ScheduleKey> schedule_keys(const Recipe& recipe) {
  const Recipe defaults;
  using enum ScheduleKind;
  const std::vector<ScheduleKind> plateau = {ReduceOnPlateau};
  const std::vector<ScheduleKind> range_test = {RangeTest};
  constexpr const char *kPlateau = "reduce_lr_on_plateau", *kRangeTest = "lr_range_test";
  return {
      {"cosine_min_lr_ratio",
       recipe.cosine_min_lr_ratio > 0.0,
       {Cosine, Rex, WarmupStableDecay, WarmupCosineLr},
       "cosine, rex, warmup_stable_decay or warmup_cosine_lr"},
      {"cosine_constant_lr_ratio", recipe.cosine_constant_lr_ratio > 0.0, {Cosine}, "cosine"},
      {"lr_quadratic_warmup", recipe.lr_quadratic_warmup, {Cosine}, "cosine"},
      {"lr_min",
       recipe.lr_min > 0.0,
       {Cosine, Rex, WarmupStableDecay, WarmupCosineLr, ReduceOnPlateau},
       "cosine, rex, warmup_stable_decay, warmup_cosine_lr or reduce_lr_on_plateau"},
      {"lr_plateau_factor", recipe.lr_plateau_factor != defaults.lr_plateau_factor, plateau, kPlateau},
      {"lr_plateau_patience", recipe.lr_plateau_patience != defaults.lr_plateau_patience, plateau, kPlateau},
      {"lr_plateau_threshold", recipe.lr_plateau_threshold != defaults.lr_plateau_threshold, plateau,
       kPlateau},
      {"lr_plateau_threshold_mode", recipe.lr_plateau_threshold_mode != defaults.lr_plateau_threshold_mode,
       plateau, kPlateau},
      {"lr_plateau_cooldown", recipe.lr_plateau_cooldown > 0, plateau, kPlateau},
      {"lr_cycles",
       recipe.lr_cycles > 0.0,
       {Cosine, CosineWithRestarts, WarmupStableDecay},
       "cosine, cosine_with_restarts or warmup_stable_decay"},
      {"lr_end", recipe.lr_end != defaults.lr_end, {Polynomial}, "polynomial"},
      {"lr_power", recipe.lr_power != defaults.lr_power, {Polynomial}, "polynomial"},
      {"lr_timescale", recipe.lr_timescale > 0, {InverseSqrt}, "inverse_sqrt"},
      {"lr_decay_steps",
       recipe.lr_decay_steps != defaults.lr_decay_steps,
       {WarmupStableDecay},
       "warmup_stable_decay"},
      {"lr_stable_steps", recipe.lr_stable_steps.has_value(), {WarmupStableDecay}, "warmup_stable_decay"},
      {"lr_warmup_type",
       recipe.lr_warmup_type != defaults.lr_warmup_type,
       {WarmupStableDecay, WarmupLr, WarmupDecayLr, WarmupCosineLr},
       "warmup_stable_decay, or by one of DeepSpeed's"},
      {"lr_decay_type",
       recipe.lr_decay_type != defaults.lr_decay_type,
       {WarmupStableDecay},
       "warmup_stable_decay"},
      {"lr_div_factor", recipe.lr_div_factor != defaults.lr_div_factor, {OneCycle}, "one_cycle"},
      {"lr_final_div_factor",
       recipe.lr_final_div_factor != defaults.lr_final_div_factor,
       {OneCycle},
       "one_cycle"},
      {"lr_range_test_step_size", recipe.lr_range_test_step_size != defaults.lr_range_test_step_size,
       range_test, kRangeTest},
      {"lr_range_test_step_rate", recipe.lr_range_test_step_rate != defaults.lr_range_test_step_rate,
       range_test, kRangeTest},
      {"lr_range_test_staircase", recipe.lr_range_test_staircase, range_test, kRangeTest},
      {"lr_range_test_max_lr", recipe.lr_range_test_max_lr > 0.0, range_test, kRangeTest},
  };
}

// Warns of keys that only other schedules than the chosen one read.
void warn_of_other_schedules(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  for (const auto& [key, is_changed, readers, names] : schedule_keys(recipe)) {
    if (!is_changed || std::ranges::find(readers, recipe.lr_scheduler) != readers.end()) continue;
    rules.warn_idle(key, std::string("without 'lr_scheduler: ") + names + "'");
  }
}

void validate_schedule(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  if (recipe.cosine_constant_lr_ratio > 0.0 && recipe.cosine_min_lr_ratio == 0.0) {
    rules
        .refuse_text("CONFLICT", {"cosine_constant_lr_ratio", "cosine_min_lr_ratio"},
                     "key 'cosine_constant_lr_ratio' needs 'cosine_min_lr_ratio'")
        .hint("otherwise the learning rate stays at 0 from there on");
  }
  if (recipe.lr_min > 0.0 && recipe.lr_min >= recipe.learning_rate)
    rules.refuse("RANGE", {"lr_min", "learning_rate"}, "must be below 'learning_rate'")
        .got(std::to_string(recipe.lr_min) + " and " + std::to_string(recipe.learning_rate));
  const bool is_deepspeed = is_of_deepspeed(recipe.lr_scheduler),
             is_log = recipe.lr_warmup_type == RampKind::Log;
  if (is_deepspeed && !is_log && recipe.lr_warmup_type != RampKind::Linear)
    rules.refuse("CONFLICT", {"lr_warmup_type", "lr_scheduler"}, "DeepSpeed's schedules have no such warm-up")
        .need("linear or log");
  if (is_log && recipe.lr_scheduler == ScheduleKind::WarmupStableDecay) {
    rules.refuse("CONFLICT", {"lr_warmup_type", "lr_scheduler"}, "only DeepSpeed's schedules accept log")
        .need("linear, cosine or 1-sqrt");
  }
  if (recipe.lr_range_test_max_lr > 0.0 && recipe.lr_range_test_max_lr <= recipe.learning_rate)
    rules.refuse("RANGE", {"lr_range_test_max_lr", "learning_rate"}, "must be above 'learning_rate'")
        .got(std::to_string(recipe.lr_range_test_max_lr) + " and " + std::to_string(recipe.learning_rate));
  if (recipe.lr_range_test_max_lr > 0.0 && recipe.learning_rate == 0.0)
    rules.refuse_text("CONFLICT", {"learning_rate", "lr_range_test_max_lr"},
                      "key 'lr_range_test_max_lr' needs a 'learning_rate' above 0");
  const bool is_range_test = recipe.lr_scheduler == ScheduleKind::RangeTest;
  if (recipe.lr_scheduler == ScheduleKind::ReduceOnPlateau || is_range_test) {
    const std::string warmup = recipe.warmup_steps.value_or(0.0) > 0.0   ? "warmup_steps"
                               : recipe.warmup_ratio.value_or(0.0) > 0.0 ? "warmup_ratio"
                                                                         : "";
    if (!warmup.empty()) {
      rules.warn_idle(warmup, std::string("with 'lr_scheduler: ") +
                                  (is_range_test ? "lr_range_test'" : "reduce_lr_on_plateau'"));
    }
  }
  if (recipe.lr_scheduler == ScheduleKind::Polynomial && recipe.lr_end >= recipe.learning_rate)
    rules.refuse("RANGE", {"lr_end", "learning_rate"}, "must be below 'learning_rate'")
        .got(std::to_string(recipe.lr_end) + " and " + std::to_string(recipe.learning_rate));
  if (recipe.jagged_restart_steps > 0 &&
      recipe.jagged_restart_steps < recipe.jagged_restart_warmup_steps + recipe.jagged_restart_anneal_steps) {
    rules
        .refuse("CONFLICT",
                {"jagged_restart_steps", "jagged_restart_warmup_steps", "jagged_restart_anneal_steps"},
                "shorter than its warm-up and annealing")
        .got(std::to_string(recipe.jagged_restart_steps))
        .need("at least " +
              std::to_string(recipe.jagged_restart_warmup_steps + recipe.jagged_restart_anneal_steps));
  }
}

// Checks the learning rates of parts of the model, which are shares of learning_rate, so that the schedule
// moves all of them.
void validate_rates_of_parts(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  const std::string key = recipe.embedding_lr         ? "embedding_lr"
                          : recipe.embedding_lr_scale ? "embedding_lr_scale"
                          : !recipe.lr_groups.empty() ? "lr_groups"
                                                      : "";
  if (key.empty()) return;
  if (recipe.loraplus_lr_ratio > 0.0) {
    rules
        .refuse_text("CONFLICT", {"loraplus_lr_ratio", key},
                     "keys 'loraplus_lr_ratio' and '" + key + "' exclude each other")
        .hint("keep one of them");
  }
  if (recipe.learning_rate == 0.0)
    rules.refuse_text("CONFLICT", {"learning_rate", key},
                      "key '" + key + "' needs a 'learning_rate' above 0");
}

}  // namespace

void validate_learning_rates(Rules& rules) {
  warn_of_other_schedules(rules);
  validate_schedule(rules);
  validate_rates_of_parts(rules);
}

}  // namespace tessera::config
