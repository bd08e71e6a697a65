#include "tessera/config/optimizer_rules.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/config/rules.h"
#include "tessera/config/scalar.h"
#include "tessera/core/strings.h"

namespace tessera::config {
namespace {

constexpr std::string_view kArguments = "optimizer_args.";

const OptimizerOption* find_option(const OptimizerFacts& facts, std::string_view name) {
  const auto option = std::ranges::find(facts.options, name, &OptimizerOption::name);
  return option == facts.options.end() ? nullptr : &*option;
}

// Returns whether the option has a recipe key of its own.
bool is_key(std::string_view option) {
  return option == "adam_beta1" || option == "adam_beta2" || option == "adam_epsilon";
}

// Returns the value of an entry of optimizer_args; nullopt if it does not fit the option.
std::optional<double> value_of(const OptimizerOption& option, const std::string& text) {
  if (option.is_switch) {
    const auto value = parse_bool(text);
    return value ? std::optional(*value ? 1.0 : 0.0) : std::nullopt;
  }
  if (!option.words.empty()) {
    const auto word = std::ranges::find(option.words, text);
    if (word == option.words.end()) return std::nullopt;
    return static_cast<double>(word - option.words.begin());
  }
  const auto value = parse_number(text);
  const bool fits = value && *value >= option.low && *value <= option.high &&
                    (!option.is_whole || *value == std::floor(*value));
  return fits ? value : std::nullopt;
}

std::string range_of(const OptimizerOption& option) {
  if (option.is_switch) return "true or false";
  if (!option.words.empty())
    return join(std::vector<std::string>(option.words.begin(), option.words.end()), " or ");
  const std::string kind = option.is_whole ? "a whole number" : "a number";
  return kind + " from " + format_number(option.low) +
         (option.high < 1.0 && option.high > 0.9999 ? " to below 1" : " to " + format_number(option.high));
}

void check_argument(Rules& rules, const OptimizerFacts& facts, const std::string& name,
                    const std::string& text) {
  const std::string key = std::string(kArguments) + name,
                    optimizer = "'optimizer: " + std::string(facts.name);
  const OptimizerOption* const option = find_option(facts, name);
  if (option != nullptr && !is_key(name)) {
    if (!value_of(*option, text))
      rules.refuse("RANGE", {key}, "out of range").got(text).need(range_of(*option));
    return;
  }
  std::vector<std::string> names;
  for (const OptimizerOption& other : facts.options) {
    if (!is_key(other.name)) names.emplace_back(other.name);
  }
  Error& error = rules.refuse("UNSUPPORTED", {key, "optimizer"}, optimizer + "' has no such option");
  error.got(text).need(names.empty() ? "no entry in optimizer_args" : join(names, ", "));
}

// Checks what a recipe's optimizer cannot do that AdamW can.
void check_abilities(Rules& rules, const OptimizerFacts& facts, bool has_states) {
  const Recipe& recipe = rules.recipe();
  if (facts.is_flexible) return;
  const std::string name = "optimizer: " + std::string(facts.name);
  const auto refuse = [&](const char* key, const std::string& what) {
    rules.refuse("CONFLICT", {key, "optimizer"}, what + " with '" + name + "'")
        .hint("optimizer: adamw_torch_fused can, or leave the key out");
  };
  if (recipe.optimizer_state_dtype != StateType::OfWeights) {
    if (!has_states) rules.warn_idle("optimizer_state_dtype", "with '" + name + "', which keeps no states");
    if (has_states) refuse("optimizer_state_dtype", "states have a dtype of their own");
  }
  if (recipe.offload_optimizer_device != OffloadDevice::None) {
    const bool is_drive = recipe.offload_optimizer_device == OffloadDevice::Nvme;
    if (!has_states)
      rules.warn_idle("offload_optimizer_device", "with '" + name + "', which keeps no states");
    if (has_states && !is_drive) refuse("offload_optimizer_device", "states stay on the device");
  }
  if (recipe.offload_param_device != OffloadDevice::None && has_states)
    refuse("offload_param_device", "parameters and states stay on the device");
}

// Checks the keys about states on a drive.
void check_drive(Rules& rules) {
  constexpr int64_t kBlock = 4096;  // of drives that read and write past the page cache
  const Recipe& recipe = rules.recipe();
  if (recipe.offload_optimizer_device != OffloadDevice::Nvme) return;
  if (recipe.aio_block_size % kBlock != 0) {
    rules.refuse("RANGE", {"aio_block_size"}, "no whole number of a drive's blocks")
        .got(std::to_string(recipe.aio_block_size))
        .need("a multiple of " + std::to_string(kBlock));
  }
  if (recipe.offload_optimizer_nvme_path.empty()) {
    rules
        .refuse("CONFLICT", {"offload_optimizer_device", "offload_optimizer_nvme_path"},
                "'nvme' needs a folder")
        .need("offload_optimizer_nvme_path: a folder on a local drive");
  }
  if (recipe.offload_param_device != OffloadDevice::None) {
    rules
        .refuse("CONFLICT", {"offload_optimizer_device", "offload_param_device"},
                "the states of parameters on the host lie there, too")
        .hint("leave offload_param_device out, or write offload_optimizer_device: cpu");
  }
}

void warn_of_traps(Rules& rules, const OptimizerFacts& facts) {
  const Recipe& recipe = rules.recipe();
  const bool has_betas = recipe.key_places.contains("adam_beta1") || recipe.key_places.contains("adam_beta2");
  if (!facts.own_betas.empty() && !has_betas) {
    rules.warn_text("optimizer",
                    "has Adam's betas 0.9 and 0.999, as Transformers passes them; the defaults "
                    "of its authors are " +
                        std::string(facts.own_betas) + " (adam_beta1, adam_beta2)");
  }
  const Recipe defaults;
  const std::pair<const char*, bool> keys[] = {
      {"adam_beta1", recipe.adam_beta1 != defaults.adam_beta1},
      {"adam_beta2", recipe.adam_beta2 != defaults.adam_beta2},
      {"adam_epsilon", recipe.adam_epsilon != defaults.adam_epsilon}};
  for (const auto& [key, is_changed] : keys) {
    if (is_changed && find_option(facts, key) == nullptr)
      rules.warn_idle(key, "with 'optimizer: " + std::string(facts.name) + "'");
  }
  const bool is_constant = recipe.lr_scheduler == ScheduleKind::Constant ||
                           recipe.lr_scheduler == ScheduleKind::ConstantWithWarmup;
  if (facts.kind == OptimizerKind::ScheduleFreeAdamW && !is_constant) {
    rules.warn_text("lr_scheduler",
                    "lowers the learning rate, which the average of schedule_free_adamw "
                    "stands for; write constant_with_warmup");
  }
}

}  // namespace

OptimizerOptions optimizer_options(const Recipe& recipe) {
  const OptimizerFacts& facts = facts_of(recipe.optimizer);
  OptimizerOptions options = default_options(recipe.optimizer);
  const Recipe defaults;
  const auto take = [&](const char* name, double value, double otherwise) {
    const OptimizerOption* const option = find_option(facts, name);
    const bool is_given = recipe.key_places.contains(name) || value != otherwise;
    if (option != nullptr && is_given) options.*option->field = value;
  };
  take("adam_beta1", recipe.adam_beta1, defaults.adam_beta1);
  take("adam_beta2", recipe.adam_beta2, defaults.adam_beta2);
  take("adam_epsilon", recipe.adam_epsilon, defaults.adam_epsilon);
  for (const auto& [name, text] : recipe.optimizer_args) {
    const OptimizerOption* const option = find_option(facts, name);
    const auto value = option == nullptr ? std::nullopt : value_of(*option, text);
    if (value) options.*option->field = *value;
  }
  return options;
}

void validate_optimizer(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  const OptimizerFacts& facts = facts_of(recipe.optimizer);
  for (const auto& [name, text] : recipe.optimizer_args) check_argument(rules, facts, name, text);
  const OptimizerOptions options = optimizer_options(recipe);
  const bool is_sgd = recipe.optimizer == OptimizerKind::Sgd;
  if (is_sgd && options.nesterov != 0.0 && (options.momentum == 0.0 || options.dampening != 0.0)) {
    rules.refuse("CONFLICT", {"optimizer_args.nesterov"}, "needs a momentum, and no dampening")
        .hint("optimizer_args: {momentum: 0.9, nesterov: true}");
  }
  if (!recipe.optim_target_modules.empty() && !facts.has_targets) {
    rules.warn_idle("optim_target_modules",
                    "with 'optimizer: " + std::string(facts.name) + "', which treats all matrices alike");
  }
  check_drive(rules);
  check_abilities(rules, facts, !is_sgd || options.momentum != 0.0);
  warn_of_traps(rules, facts);
}

}  // namespace tessera::config
