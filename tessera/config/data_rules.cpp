#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "tessera/config/rules.h"
#include "tessera/config/scalar.h"

namespace tessera::config {
namespace {

// Checks the keys that decide the order of rows.
void validate_order(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  if (recipe.group_by_length && recipe.sample_packing)
    rules.warn_idle("group_by_length", "with 'sample_packing': packed sequences have similar lengths");
  if (recipe.group_by_length && !recipe.shuffle_merged_datasets) {
    rules
        .refuse_text("CONFLICT", {"group_by_length", "shuffle_merged_datasets"},
                     "keys 'group_by_length' and 'shuffle_merged_datasets': false exclude each other")
        .hint("choose one: keep the order of the rows, or group them by length");
  }
  if (recipe.sample_packing_sequentially && !recipe.sample_packing)
    rules.warn_idle("sample_packing_sequentially", "without 'sample_packing: true'");
}

void validate_template(Rules& rules, const std::string& chat_template, const std::string& jinja,
                       const std::string& prefix) {
  const std::string name_key = prefix + "chat_template", jinja_key = prefix + "chat_template_jinja";
  if (chat_template == "jinja" && jinja.empty())
    rules.refuse("MISSING", {name_key, jinja_key}, "jinja needs '" + jinja_key + "'");
  if (!jinja.empty() && !chat_template.empty() && chat_template != "jinja") {
    rules
        .refuse_text("CONFLICT", {jinja_key, name_key},
                     "keys '" + name_key + "' and '" + jinja_key + "' exclude each other")
        .got("chat_template: " + chat_template)
        .hint("chat_template: jinja uses the given template");
  }
}

void validate_datasets(Rules& rules, const std::vector<DatasetConfig>& datasets, const std::string& key) {
  for (size_t i = 0; i < datasets.size(); ++i) {
    const DatasetConfig& dataset = datasets[i];
    const std::string prefix = key + '.' + std::to_string(i) + '.';
    validate_template(rules, dataset.chat_template, dataset.chat_template_jinja, prefix);
    const size_t colon = dataset.type.find(':');
    const std::string style = colon == std::string::npos ? "instruct" : dataset.type.substr(colon + 1);
    const bool is_known = style == "instruct" || style == "chat" || style == "chatml" || style == "phi";
    if (!is_known || (dataset.type.starts_with("reflection:") && style != "instruct")) {
      rules.refuse("VALUE", {prefix + "type"}, "unknown style")
          .got(dataset.type)
          .need(dataset.type.starts_with("reflection:") ? "reflection:instruct"
                                                        : "instruct, chat, chatml or phi");
    }
    for (const auto& [step, weight] : dataset.weight_from_step) {
      const ParsedInteger from = parse_integer(step);
      const double value = parse_number(weight).value_or(-1.0);
      if (from.status == IntegerStatus::Ok && from.value >= 1 && value >= 0.0 && value <= 1e9) continue;
      const std::string weights_key = prefix + "weight_from_step";
      rules.refuse_text("WEIGHT", {weights_key}, "key '" + weights_key + "' is a map from steps to weights")
          .got(step + ": " + weight)
          .need("a step, from 1 on, and a weight from 0 to 1e+09");
    }
    if (dataset.weight < 1e-9 && dataset.weight_from_step.empty()) {
      rules.refuse("RANGE", {prefix + "weight"}, "too small")
          .got(std::to_string(dataset.weight))
          .need("at least 1e-09, or 0 with a weight_from_step");
    }
    if (dataset.shards_idx >= dataset.shards) {
      rules.refuse("RANGE", {prefix + "shards_idx", prefix + "shards"}, "out of range")
          .got(std::to_string(dataset.shards_idx))
          .need("below shards, which is " + std::to_string(dataset.shards));
    }
  }
}

struct Excluded {
  const char* key;
  bool is_set;
  const char* hint;
};

// Refuses keys that need epochs, together with `excluded`, because `key` (shown as `shown`) gives the run
// none; max_steps is required instead.
void validate_endless(Rules& rules, const std::string& key, const std::string& shown,
                      std::initializer_list<Excluded> excluded) {
  const Recipe& recipe = rules.recipe();
  std::vector<Excluded> lines = excluded;
  lines.insert(lines.end(), {{"evals_per_epoch", recipe.evals_per_epoch > 0.0, "write eval_steps"},
                             {"saves_per_epoch", recipe.saves_per_epoch > 0.0, "write save_steps"},
                             {"save_strategy", recipe.save_strategy == Cadence::Epoch, "write save_steps"}});
  for (const Excluded& line : lines) {
    if (!line.is_set) continue;
    rules
        .refuse_text("CONFLICT", {line.key, key},
                     std::string("keys '") + line.key + "' and '" + shown + "' exclude each other")
        .hint(line.hint);
  }
  if (recipe.max_steps == 0) {
    rules
        .refuse_text("MISSING", {"max_steps", key},
                     "with '" + shown + "' the data have no end, so 'max_steps' is required")
        .at(recipe.place_of({key}))
        .got("no max_steps")
        .need("the number of steps");
  }
  if (recipe.key_places.contains("num_epochs"))
    rules.warn_idle("num_epochs", "with '" + shown + "': max_steps sets the length of the run");
}

// Checks weight_from_step of prepared rows: the mixture changes with the step, so the data have no end.
void validate_curriculum(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  const auto first = std::ranges::find_if(
      recipe.datasets, [](const DatasetConfig& dataset) { return !dataset.weight_from_step.empty(); });
  if (recipe.streaming || first == recipe.datasets.end()) return;
  const std::string key = "datasets." + std::to_string(first - recipe.datasets.begin()) + ".weight_from_step";
  validate_endless(
      rules, key, key,
      {{"mix_strategy", recipe.mix_strategy != "concat",
        "weight_from_step already mixes the datasets: leave this key out"},
       {"mix_temperature", recipe.mix_temperature > 0.0, "multiply the weights yourself"},
       {"group_by_length", recipe.group_by_length, "neighbouring rows come from different datasets"}});
}

// Checks `streaming`: rows that are made while the run goes on have no known number, and come in the order of
// their files.
void validate_streaming(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  if (!recipe.streaming) {
    if (recipe.eval_sequence_len > 0 && recipe.test_datasets.empty())
      rules.warn_idle("eval_sequence_len", "without 'test_datasets'");
    return;
  }
  const std::initializer_list<Excluded> excluded = {
      {"val_set_size", recipe.val_set_size > 0.0, "name evaluation rows in test_datasets"},
      {"dataset_exact_deduplication", recipe.dataset_exact_deduplication,
       "deduplication needs all rows: set streaming: false with dataset_prepared_path"},
      {"dataset_near_deduplication", recipe.dataset_near_deduplication > 0.0,
       "deduplication needs all rows: set streaming: false with dataset_prepared_path"},
      {"mix_temperature", recipe.mix_temperature > 0.0,
       "the sizes of streams are unknown: set weight instead"},
      {"mix_strategy", recipe.mix_strategy == "interleave_under",
       "streams have no end and are mixed by weight"},
      {"group_by_length", recipe.group_by_length, "the lengths of streamed rows are not known in advance"}};
  validate_endless(rules, "streaming", "streaming: true", excluded);
}

}  // namespace

void validate_data(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  validate_order(rules);
  validate_streaming(rules);
  validate_curriculum(rules);
  validate_template(rules, recipe.chat_template, recipe.chat_template_jinja, "");
  validate_datasets(rules, recipe.datasets, "datasets");
  validate_datasets(rules, recipe.test_datasets, "test_datasets");
}

}  // namespace tessera::config
