#include "tessera/config/validate.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tessera/config/scalar.h"
#include "tessera/config/schema.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"

namespace tessera::config {
namespace {

constexpr std::pair<const char*, const char*> kExclusive[] = {
    {"warmup_ratio", "warmup_steps"},
    {"val_set_size", "test_datasets"},
    {"eval_steps", "evals_per_epoch"},
    {"batch_size", "gradient_accumulation_steps"},
    {"lora_target_modules", "lora_target_regex"},
};

bool is_active(const Node& node) {
  if (node.is_null()) return false;
  if (node.is_sequence()) return !node.items.empty();
  if (!node.is_scalar()) return true;
  const auto number = parse_number(node.text);
  return !number || *number != 0.0;
}

bool is_from_command_line(const Entry& entry) {
  return entry.key_place.is_override || entry.value.place.is_override;
}

// batch_size (rows of a rank and a step) = micro_batch_size x gradient_accumulation_steps.
void resolve_batch_size(Node& map) {
  Entry* total = map.find("batch_size");
  if (total == nullptr) return;
  const Entry* micro = map.find("micro_batch_size");
  const ParsedInteger rows = total->value.is_scalar() ? parse_integer(total->value.text) : ParsedInteger{};
  const ParsedInteger micro_rows = micro != nullptr && micro->value.is_scalar()
                                       ? parse_integer(micro->value.text)
                                       : ParsedInteger{IntegerStatus::Ok, 1};
  if (rows.status != IntegerStatus::Ok || rows.value < 1) {
    throw config_error("RANGE", "key 'batch_size': out of range", total->value.place)
        .got(describe(total->value))
        .need("a whole number of at least 1");
  }
  // A bad micro_batch_size is reported under its own name when it is bound.
  if (micro_rows.status == IntegerStatus::Ok && micro_rows.value > 0) {
    if (rows.value % micro_rows.value != 0) {
      throw config_error(
          "CONFLICT", "keys 'batch_size' and 'micro_batch_size': the first is not a multiple of the second",
          total->key_place)
          .got(std::to_string(rows.value) + " and " + std::to_string(micro_rows.value))
          .hint("batch_size = micro_batch_size x gradient_accumulation_steps");
    }
    map.entries.push_back({"gradient_accumulation_steps", total->key_place,
                           make_scalar(std::to_string(rows.value / micro_rows.value), total->value.place),
                           "batch_size"});
  }
  map.erase("batch_size");
}

Error recipe_error(const Recipe& recipe, std::string_view name, std::string what, const std::string& key) {
  Error error(ErrorKind::Config, name, std::move(what));
  const auto it = recipe.key_places.find(key);
  if (it == recipe.key_places.end()) return error.at(recipe.source_file);
  return error.at(it->second.file, it->second.line, it->second.column);
}

void warn_at(const Recipe& recipe, const std::string& key, const std::string& text) {
  const auto it = recipe.key_places.find(key);
  std::string place = recipe.source_file;
  if (it != recipe.key_places.end()) {
    place = it->second.file;
    if (it->second.line > 0) place += ':' + std::to_string(it->second.line);
  }
  log::warn(place + ": " + text);
}

void validate_adapter(const Recipe& recipe) {
  if (recipe.adapter == AdapterKind::None) {
    const Recipe defaults;
    const std::pair<const char*, bool> keys[] = {
        {"lora_r", recipe.lora_r != defaults.lora_r},
        {"lora_alpha", recipe.lora_alpha != defaults.lora_alpha},
        {"lora_dropout", recipe.lora_dropout != defaults.lora_dropout},
        {"lora_target_modules", !recipe.lora_target_modules.empty()},
        {"lora_target_regex", !recipe.lora_target_regex.empty()},
        {"lora_target_linear", recipe.lora_target_linear},
        {"lora_modules_to_save", !recipe.lora_modules_to_save.empty()},
        {"lora_model_dir", !recipe.lora_model_dir.empty()},
        {"peft_use_rslora", recipe.peft_use_rslora},
    };
    for (const auto& [key, is_changed] : keys) {
      if (is_changed)
        warn_at(recipe, key, std::string("key '") + key + "' has no effect without 'adapter: lora'");
    }
    return;
  }
  if (!recipe.lora_target_linear && recipe.lora_target_modules.empty() && recipe.lora_target_regex.empty() &&
      recipe.lora_model_dir.empty()) {
    throw recipe_error(recipe, "MISSING", "key 'adapter': lora has nothing to adapt", "adapter")
        .need("lora_target_linear: true or lora_target_modules");
  }
}

void validate_template(const Recipe& recipe, const std::string& chat_template, const std::string& jinja,
                       const std::string& prefix) {
  if (chat_template == "jinja" && jinja.empty()) {
    throw recipe_error(recipe, "MISSING",
                       "key '" + prefix + "chat_template': jinja needs '" + prefix + "chat_template_jinja'",
                       prefix + "chat_template");
  }
  if (!jinja.empty() && !chat_template.empty() && chat_template != "jinja") {
    throw recipe_error(
        recipe, "CONFLICT",
        "keys '" + prefix + "chat_template' and '" + prefix + "chat_template_jinja' exclude each other",
        prefix + "chat_template_jinja")
        .got("chat_template: " + chat_template)
        .hint("chat_template: jinja uses the given template");
  }
}

void validate_datasets(const Recipe& recipe, const std::vector<DatasetConfig>& datasets,
                       const std::string& key) {
  for (size_t i = 0; i < datasets.size(); ++i) {
    const DatasetConfig& dataset = datasets[i];
    const std::string prefix = key + '.' + std::to_string(i) + '.';
    validate_template(recipe, dataset.chat_template, dataset.chat_template_jinja, prefix);
    if (dataset.shards_idx >= dataset.shards) {
      throw recipe_error(recipe, "RANGE", "key '" + prefix + "shards_idx': out of range",
                         prefix + "shards_idx")
          .got(std::to_string(dataset.shards_idx))
          .need("below shards, which is " + std::to_string(dataset.shards));
    }
  }
}

}  // namespace

void check_exclusive_keys(Node& map) {
  for (const auto& [first, second] : kExclusive) {
    const Entry* a = map.find(first);
    const Entry* b = map.find(second);
    if (a == nullptr || b == nullptr || !is_active(a->value) || !is_active(b->value)) continue;
    if (is_from_command_line(*a) != is_from_command_line(*b)) {
      map.erase(is_from_command_line(*a) ? second : first);
      continue;
    }
    throw config_error("CONFLICT",
                       "keys '" + a->name_in_file() + "' (" + describe_place(a->key_place, b->key_place) +
                           ") and '" + b->name_in_file() + "' (" +
                           describe_place(b->key_place, b->key_place) + ") exclude each other",
                       b->key_place)
        .got(describe(a->value) + " and " + describe(b->value))
        .hint("keep one of them");
  }
  resolve_batch_size(map);

  std::vector<std::string> missing;
  for (const std::string_view name : required_recipe_keys()) {
    const Entry* entry = map.find(name);
    if (entry == nullptr || (entry->value.is_sequence() && entry->value.items.empty()) ||
        (entry->value.is_scalar() && entry->value.text.empty())) {
      missing.emplace_back(name);
    }
  }
  if (missing.empty()) return;
  Place file = map.place;
  file.line = file.column = 0;
  throw config_error(
      "MISSING",
      missing.size() == 1 ? "missing key '" + missing[0] + "'" : "missing keys " + join(missing, ", "), file)
      .need(join(missing, ", "));
}

void validate(const Recipe& recipe) {
  if (recipe.val_set_size >= 1.0 && recipe.val_set_size != std::floor(recipe.val_set_size)) {
    throw recipe_error(recipe, "RANGE", "key 'val_set_size': neither a share nor a number of rows",
                       "val_set_size")
        .got(std::to_string(recipe.val_set_size))
        .need("a number below 1, or a whole number of rows");
  }
  if (recipe.dp_shard_size == 0) {
    throw recipe_error(recipe, "RANGE", "key 'dp_shard_size': out of range", "dp_shard_size")
        .got("0")
        .need("-1 (the ranks that remain) or at least 1");
  }
  if (recipe.cosine_min_lr_ratio > 0.0 && recipe.lr_scheduler != SchedulerKind::Cosine) {
    warn_at(recipe, "cosine_min_lr_ratio",
            "key 'cosine_min_lr_ratio' has no effect without 'lr_scheduler: cosine'");
  }
  const bool has_eval_data = recipe.val_set_size > 0.0 || !recipe.test_datasets.empty();
  if (!has_eval_data && (recipe.eval_steps > 0 || recipe.evals_per_epoch > 0.0)) {
    const std::string key = recipe.eval_steps > 0 ? "eval_steps" : "evals_per_epoch";
    warn_at(recipe, key, "key '" + key + "' has no effect without 'val_set_size' or 'test_datasets'");
  }
  if (recipe.warmup_steps > 0 && recipe.max_steps > 0 && recipe.warmup_steps > recipe.max_steps) {
    throw recipe_error(recipe, "CONFLICT",
                       "keys 'warmup_steps' and 'max_steps': the warm-up is longer than the run",
                       "warmup_steps")
        .got(std::to_string(recipe.warmup_steps) + " and " + std::to_string(recipe.max_steps));
  }
  if (recipe.min_sample_len > recipe.sequence_len) {
    throw recipe_error(recipe, "CONFLICT",
                       "keys 'min_sample_len' and 'sequence_len': every row would be dropped",
                       recipe.key_places.contains("min_sample_len") ? "min_sample_len" : "sequence_len")
        .got(std::to_string(recipe.min_sample_len) + " and " + std::to_string(recipe.sequence_len));
  }
  validate_template(recipe, recipe.chat_template, recipe.chat_template_jinja, "");
  validate_adapter(recipe);
  validate_datasets(recipe, recipe.datasets, "datasets");
  validate_datasets(recipe, recipe.test_datasets, "test_datasets");
}

}  // namespace tessera::config
