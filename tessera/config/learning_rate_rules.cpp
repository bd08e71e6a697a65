#include <algorithm>
#include <string>
#include <vector>

#include "tessera/config/rules.h"

namespace tessera::config {
namespace {

// Warns of keys that only other schedules than the chosen one read.
void warn_of_other_schedules(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  const Recipe defaults;
  using enum ScheduleKind;
  struct Line {
    const char* key;
    bool is_changed;
    std::vector<ScheduleKind> readers;
    const char* names;
  };
  const std::vector<ScheduleKind> plateau = {ReduceOnPlateau};
  constexpr const char* kPlateau = "reduce_lr_on_plateau";
  const Line lines[] = {
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
  };
  for (const Line& line : lines) {
    const bool is_read =
        std::find(line.readers.begin(), line.readers.end(), recipe.lr_scheduler) != line.readers.end();
    if (!line.is_changed || is_read) continue;
    rules.warn(line.key, std::string("key '") + line.key +
                             "' has no effect without 'lr_scheduler: " + line.names + "'");
  }
}

void validate_schedule(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  if (recipe.cosine_constant_lr_ratio > 0.0 && recipe.cosine_min_lr_ratio == 0.0) {
    rules.refuse({"cosine_constant_lr_ratio", "cosine_min_lr_ratio"},
                 rules
                     .error("CONFLICT", "key 'cosine_constant_lr_ratio' needs 'cosine_min_lr_ratio'",
                            "cosine_constant_lr_ratio")
                     .hint("otherwise the learning rate stays at 0 from there on"));
  }
  if (recipe.lr_min > 0.0 && recipe.lr_min >= recipe.learning_rate) {
    rules.refuse({"lr_min", "learning_rate"},
                 rules.error("RANGE", "key 'lr_min': must be below 'learning_rate'", "lr_min")
                     .got(std::to_string(recipe.lr_min) + " and " + std::to_string(recipe.learning_rate)));
  }
  const bool is_deepspeed = is_of_deepspeed(recipe.lr_scheduler),
             is_log = recipe.lr_warmup_type == RampKind::Log;
  if (is_deepspeed && !is_log && recipe.lr_warmup_type != RampKind::Linear) {
    rules.refuse({"lr_warmup_type", "lr_scheduler"},
                 rules
                     .error("CONFLICT", "key 'lr_warmup_type': DeepSpeed's schedules have no such warm-up",
                            "lr_warmup_type")
                     .need("linear or log"));
  }
  if (is_log && recipe.lr_scheduler == ScheduleKind::WarmupStableDecay) {
    rules.refuse({"lr_warmup_type", "lr_scheduler"},
                 rules
                     .error("CONFLICT", "key 'lr_warmup_type': only DeepSpeed's schedules accept log",
                            "lr_warmup_type")
                     .need("linear, cosine or 1-sqrt"));
  }
  if (recipe.lr_scheduler == ScheduleKind::ReduceOnPlateau) {
    const std::string warmup = recipe.warmup_steps.value_or(0.0) > 0.0   ? "warmup_steps"
                               : recipe.warmup_ratio.value_or(0.0) > 0.0 ? "warmup_ratio"
                                                                         : "";
    if (!warmup.empty())
      rules.warn(warmup, "key '" + warmup + "' has no effect with 'lr_scheduler: reduce_lr_on_plateau'");
  }
  if (recipe.lr_scheduler == ScheduleKind::Polynomial && recipe.lr_end >= recipe.learning_rate) {
    rules.refuse({"lr_end", "learning_rate"},
                 rules.error("RANGE", "key 'lr_end': must be below 'learning_rate'", "lr_end")
                     .got(std::to_string(recipe.lr_end) + " and " + std::to_string(recipe.learning_rate)));
  }
  if (recipe.jagged_restart_steps > 0 &&
      recipe.jagged_restart_steps < recipe.jagged_restart_warmup_steps + recipe.jagged_restart_anneal_steps) {
    rules.refuse({"jagged_restart_steps", "jagged_restart_warmup_steps", "jagged_restart_anneal_steps"},
                 rules
                     .error("CONFLICT", "key 'jagged_restart_steps': shorter than its warm-up and annealing",
                            "jagged_restart_steps")
                     .got(std::to_string(recipe.jagged_restart_steps))
                     .need("at least " + std::to_string(recipe.jagged_restart_warmup_steps +
                                                        recipe.jagged_restart_anneal_steps)));
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
    rules.refuse({"loraplus_lr_ratio", key},
                 rules
                     .error("CONFLICT", "keys 'loraplus_lr_ratio' and '" + key + "' exclude each other",
                            "loraplus_lr_ratio")
                     .hint("keep one of them"));
  }
  if (recipe.learning_rate == 0.0) {
    rules.refuse(
        {"learning_rate", key},
        rules.error("CONFLICT", "key '" + key + "' needs a 'learning_rate' above 0", "learning_rate"));
  }
}

}  // namespace

void validate_learning_rates(Rules& rules) {
  warn_of_other_schedules(rules);
  validate_schedule(rules);
  validate_rates_of_parts(rules);
}

}  // namespace tessera::config
