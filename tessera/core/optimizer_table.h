// The optimizers that a recipe can name, and their options with defaults.
#pragma once

#include <span>
#include <string_view>

namespace tessera {

enum class OptimizerKind {
  AdamW,
  Sgd,
  Lion,
  Adagrad,
  RmsProp,
  AdEMAMix,
  ScheduleFreeAdamW,
  AdamW8bit,
  StableAdamW,
  Lamb,
  Adafactor,
  Came,
  Muon,
  MuonJordan,
  MuonTorch,
  AdamMini,
  GaLore,
  Apollo,
  ApolloMini,
};

// The numbers of a rule. An optimizer reads those that its OptimizerFacts list; docs/optimizers.md has the
// formulas. Switches are 0 or 1.
struct OptimizerOptions {
  double beta1 = 0.9, beta2 = 0.999, beta3 = 0.9999, epsilon = 1e-8, epsilon2 = 1e-16;
  double momentum = 0.0, dampening = 0.0, nesterov = 0.0;
  double alpha = 0.99, centered = 0.0;
  double lr_decay = 0.0;
  double t_alpha = 0.0, t_beta3 = 0.0;    // updates; 0 = no warm-up
  double r = 0.0, weight_lr_power = 2.0;  // of the weights of schedule-free averages
  double clip_threshold = 1.0, decay_rate = -0.8;
  double min_coeff = 0.01, max_coeff = 10.0;
  double ns_steps = 5.0, match_rms_adamw = 0.0;
  // These are for gradients that are projected to fewer rows or columns. A word counts as its place among the
  // words of its option: a scale_type of 0 is "channel".
  double rank = 128.0, update_proj_gap = 200.0, scale = 1.0, proj = 0.0, proj_type = 0.0, scale_type = 0.0;
};

// One option of an optimizer: its key, where it lies, its default and its inclusive bounds. An option with
// words takes one of them; its value is the word's place.
struct OptimizerOption {
  std::string_view name;
  double OptimizerOptions::*field;
  double value, low, high;
  bool is_switch = false, is_whole = false;  // true or false; a whole number
  std::span<const std::string_view> words = {};
};

// One line of the table of optimizers.
struct OptimizerFacts {
  OptimizerKind kind;
  std::string_view name;                     // as a recipe spells it
  std::span<const OptimizerOption> options;  // adam_beta1, adam_beta2 and adam_epsilon are recipe keys
  bool has_states = true;
  // Takes optimizer_state_dtype: bfloat16, and states or parameters that lie on the host beside a device.
  bool is_flexible = false;
  std::string_view own_betas = "";  // the defaults of its authors, where the tools pass others
  bool has_targets = false;         // takes optim_target_modules
};

// Returns the facts of all optimizers, in the order of OptimizerKind.
std::span<const OptimizerFacts> optimizer_table();
const OptimizerFacts& facts_of(OptimizerKind kind);
// Returns the optimizer's defaults.
OptimizerOptions default_options(OptimizerKind kind);

}  // namespace tessera
