#include "tessera/config/validate.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "tessera/config/scalar.h"
#include "tessera/config/schema.h"
#include "tessera/core/strings.h"

namespace tessera::config {
namespace {

constexpr std::pair<const char*, const char*> kExclusive[] = {
    {"warmup_ratio", "warmup_steps"},
    {"val_set_size", "test_datasets"},
    {"eval_steps", "evals_per_epoch"},
    {"save_steps", "saves_per_epoch"},
    {"batch_size", "gradient_accumulation_steps"},
    {"lora_target_modules", "lora_target_regex"},
    {"embedding_lr", "embedding_lr_scale"},
    {"lr_min", "cosine_min_lr_ratio"},
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

// The rules between values, each tried unless one of its keys has a problem of its own.
class Rules {
 public:
  Rules(const Recipe& recipe, Problems& problems) : recipe_(recipe), problems_(problems) {}

  const Recipe& recipe() const { return recipe_; }

  // Refuses: an error under the name of `key`.
  Error error(std::string_view name, std::string what, const std::string& key) const {
    const KeyPlace place = place_of(key);
    return Error(ErrorKind::Config, name, std::move(what)).at(place.file, place.line, place.column);
  }
  void refuse(const std::vector<std::string>& keys, const Error& error) {
    const auto has_problem = [&](const std::string& key) { return problems_.has(key); };
    if (std::none_of(keys.begin(), keys.end(), has_problem))
      problems_.add(keys.front(), place_of(keys.front()), error);
  }
  void warn(const std::string& key, const std::string& text) {
    const KeyPlace place = place_of(key);
    problems_.warn(place.file + (place.line > 0 ? ':' + std::to_string(place.line) : "") + ": " + text);
  }

 private:
  KeyPlace place_of(const std::string& key) const {
    const auto it = recipe_.key_places.find(key);
    return it == recipe_.key_places.end() ? KeyPlace{recipe_.source_file} : it->second;
  }

  const Recipe& recipe_;
  Problems& problems_;
};

// A measurement may come out otherwise the next time.
void validate_deterministic(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  if (!recipe.deterministic) return;
  const auto refuse = [&](const std::string& key, const std::string& value, const std::string& hint) {
    rules.refuse({key, "deterministic"},
                 rules
                     .error("CONFLICT",
                            "keys 'deterministic' and '" + key + "': " + value + " exclude each other", key)
                     .hint(hint));
  };
  if (recipe.dtype == ComputeType::Auto) refuse("dtype", "auto", "write bfloat16 or float32");
  if (recipe.pipeline_split_by == SplitBasis::Time)
    refuse("pipeline_split_by", "time", "a run without the key writes the pipeline_split that it has found");
}

void validate_fp8(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  if (!recipe.fp8 || recipe.dtype == ComputeType::BFloat16) return;
  rules.refuse({"fp8", "dtype"},
               rules.error("CONFLICT", "keys 'fp8' and 'dtype': beside products in fp8 is bfloat16", "fp8")
                   .need("dtype: bfloat16, which fp8: true means alone"));
}

void validate_adapter(Rules& rules) {
  const Recipe& recipe = rules.recipe();
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
        {"loraplus_lr_ratio", recipe.loraplus_lr_ratio > 0.0},
    };
    for (const auto& [key, is_changed] : keys) {
      if (is_changed) rules.warn(key, std::string("key '") + key + "' has no effect without 'adapter: lora'");
    }
    return;
  }
  if (!recipe.unfrozen_parameters.empty()) {
    rules.refuse({"unfrozen_parameters", "adapter"},
                 rules
                     .error("CONFLICT", "keys 'unfrozen_parameters' and 'adapter' exclude each other",
                            "unfrozen_parameters")
                     .hint("beside an adapter all weights are frozen; lora_modules_to_save trains modules "
                           "whole"));
  }
  if (!recipe.lora_target_linear && recipe.lora_target_modules.empty() && recipe.lora_target_regex.empty() &&
      recipe.lora_model_dir.empty()) {
    rules.refuse({"adapter", "lora_target_linear", "lora_target_modules", "lora_target_regex",
                  "lora_target_parameters"},
                 rules.error("MISSING", "key 'adapter': lora has nothing to adapt", "adapter")
                     .need("lora_target_linear: true or lora_target_modules"));
  }
}

// Keys that only some schedules read.
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
       {Cosine, Rex, WarmupStableDecay},
       "cosine, rex or warmup_stable_decay"},
      {"cosine_constant_lr_ratio", recipe.cosine_constant_lr_ratio > 0.0, {Cosine}, "cosine"},
      {"lr_quadratic_warmup", recipe.lr_quadratic_warmup, {Cosine}, "cosine"},
      {"lr_min",
       recipe.lr_min > 0.0,
       {Cosine, Rex, WarmupStableDecay, ReduceOnPlateau},
       "cosine, rex, warmup_stable_decay or reduce_lr_on_plateau"},
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
       {WarmupStableDecay},
       "warmup_stable_decay"},
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
  warn_of_other_schedules(rules);
  if (recipe.cosine_constant_lr_ratio > 0.0 && recipe.cosine_min_lr_ratio == 0.0) {
    rules.refuse({"cosine_constant_lr_ratio", "cosine_min_lr_ratio"},
                 rules
                     .error("CONFLICT", "key 'cosine_constant_lr_ratio' needs 'cosine_min_lr_ratio'",
                            "cosine_constant_lr_ratio")
                     .hint("the learning rate would stay at 0 from there on"));
  }
  if (recipe.lr_min > 0.0 && recipe.lr_min >= recipe.learning_rate) {
    rules.refuse({"lr_min", "learning_rate"},
                 rules.error("RANGE", "key 'lr_min': not below 'learning_rate'", "lr_min")
                     .got(std::to_string(recipe.lr_min) + " and " + std::to_string(recipe.learning_rate)));
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
                 rules.error("RANGE", "key 'lr_end': not below 'learning_rate'", "lr_end")
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

// Learning rates of parts of the model are shares of learning_rate, which the schedule moves.
void validate_learning_rates(Rules& rules) {
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

// What looks at the losses of evaluations.
void validate_evaluation_readers(Rules& rules, bool has_eval_data) {
  const Recipe& recipe = rules.recipe();
  const std::pair<const char*, bool> readers[] = {
      {"early_stopping_patience", recipe.early_stopping_patience > 0},
      {"load_best_model_at_end", recipe.load_best_model_at_end},
      {"save_strategy", recipe.save_strategy == Cadence::Best && !recipe.load_best_model_at_end},
      {"lr_scheduler", recipe.lr_scheduler == ScheduleKind::ReduceOnPlateau}};
  const bool has_reader = std::ranges::any_of(readers, [](const auto& reader) { return reader.second; });
  if (recipe.early_stopping_patience == 0 && recipe.early_stopping_threshold > 0.0)
    rules.warn("early_stopping_threshold",
               "key 'early_stopping_threshold' has no effect without 'early_stopping_patience'");
  const std::string& metric = recipe.metric_for_best_model;
  if (!has_reader && !metric.empty())
    rules.warn("metric_for_best_model",
               "key 'metric_for_best_model' has no effect without 'load_best_model_at_end', 'save_strategy: "
               "best', 'early_stopping_patience' or 'lr_scheduler: reduce_lr_on_plateau'");
  const bool is_loss =
      metric.empty() || metric == "loss" || (metric.starts_with("eval_") && metric.ends_with("loss"));
  if (!is_loss) {
    rules.refuse({"metric_for_best_model"},
                 rules
                     .error("UNSUPPORTED", "key 'metric_for_best_model': evaluations give losses alone",
                            "metric_for_best_model")
                     .got(metric)
                     .need("eval_loss, or eval_<name>_loss of one of several datasets"));
  }
  if (recipe.load_best_model_at_end && recipe.save_strategy == Cadence::No) {
    rules.refuse(
        {"load_best_model_at_end", "save_strategy"},
        rules
            .error("CONFLICT", "keys 'load_best_model_at_end' and 'save_strategy: no' exclude each other",
                   "load_best_model_at_end")
            .hint("save_strategy: best saves what it needs"));
  }
  if (has_eval_data && recipe.eval_strategy != Cadence::No) return;
  for (const auto& [key, is_on] : readers) {
    if (!is_on) continue;
    rules.refuse({key, "val_set_size", "test_datasets", "eval_strategy"},
                 rules.error("CONFLICT", std::string("key '") + key + "': this run evaluates nothing", key)
                     .need("val_set_size or test_datasets, and an eval_strategy other than no"));
  }
}

// A tracker of another machine would have to be sent to.
void validate_trackers(Rules& rules) {
  const std::string& uri = rules.recipe().mlflow_tracking_uri;
  const size_t scheme = uri.find(':');
  const bool is_path = scheme == std::string::npos || uri.starts_with("file:/") || uri.find('/') < scheme;
  if (is_path) return;
  rules.refuse({"mlflow_tracking_uri"},
               rules
                   .error("UNSUPPORTED", "key 'mlflow_tracking_uri': nothing is sent over a network",
                          "mlflow_tracking_uri")
                   .got(uri)
                   .need("a folder, such as ./mlruns or file:///data/mlruns")
                   .hint("`mlflow server --backend-store-uri FOLDER` shows what a run writes there"));
}

// In which order rows come.
void validate_order(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  if (recipe.group_by_length && recipe.sample_packing) {
    rules.warn("group_by_length",
               "key 'group_by_length' has no effect with 'sample_packing': packed sequences are alike");
  }
  if (recipe.group_by_length && !recipe.shuffle_merged_datasets) {
    rules.refuse({"group_by_length", "shuffle_merged_datasets"},
                 rules
                     .error("CONFLICT",
                            "keys 'group_by_length' and 'shuffle_merged_datasets': false exclude each other",
                            "group_by_length")
                     .hint("keep the order of the rows, or group them by length"));
  }
  if (recipe.sample_packing_sequentially && !recipe.sample_packing) {
    rules.warn("sample_packing_sequentially",
               "key 'sample_packing_sequentially' has no effect without 'sample_packing: true'");
  }
}

// The largest divisor of `rows` up to `count`.
int64_t nearest_divisor(int64_t rows, int64_t count) {
  while (rows % count != 0) --count;
  return count;
}

void validate_pipeline(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  if (recipe.pipeline_schedule == PipelineKind::OneFOneB && recipe.pipeline_stages_per_rank > 1) {
    rules.refuse({"pipeline_stages_per_rank", "pipeline_schedule"},
                 rules
                     .error("CONFLICT", "key 'pipeline_stages_per_rank': 1f1b has one stage a rank",
                            "pipeline_stages_per_rank")
                     .got(std::to_string(recipe.pipeline_stages_per_rank))
                     .hint("pipeline_schedule: interleaved"));
  }
  if (!recipe.pipeline_split.empty() && recipe.pipeline_parallel_size == 1) {
    rules.refuse({"pipeline_split", "pipeline_parallel_size"},
                 rules.error("CONFLICT", "key 'pipeline_split': one rank holds all layers", "pipeline_split")
                     .got("pipeline_parallel_size 1")
                     .hint("pipeline_parallel_size: " + std::to_string(recipe.pipeline_split.size())));
  }
  if (!recipe.pipeline_split.empty() && recipe.pipeline_split_by == SplitBasis::Time) {
    rules.refuse(
        {"pipeline_split_by", "pipeline_split"},
        rules
            .error("CONFLICT", "keys 'pipeline_split' and 'pipeline_split_by': time exclude each other",
                   "pipeline_split_by")
            .hint("leave out one of them"));
  }
  const int64_t parts = recipe.pipeline_microbatches;
  const int64_t rows = recipe.micro_batch_size * recipe.gradient_accumulation_steps;
  if (parts == 0 || rows % parts == 0) return;
  rules.refuse(
      {"pipeline_microbatches", "micro_batch_size", "gradient_accumulation_steps"},
      rules
          .error("RANGE", "key 'pipeline_microbatches': the sequences of a step cannot be cut so",
                 "pipeline_microbatches")
          .got(std::to_string(parts) + " and micro_batch_size " + std::to_string(recipe.micro_batch_size) +
               " x gradient_accumulation_steps " + std::to_string(recipe.gradient_accumulation_steps) +
               " = " + std::to_string(rows))
          .need("a divisor of " + std::to_string(rows))
          .hint("pipeline_microbatches: " + std::to_string(nearest_divisor(rows, std::min(parts, rows)))));
}

void validate_saving(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  const bool rolls_back = recipe.spike_action == SpikeAction::Rollback;
  const char* const reader = rolls_back                            ? "spike_action: rollback"
                             : recipe.auto_resume_from_checkpoints ? "auto_resume_from_checkpoints"
                                                                   : nullptr;
  if (recipe.save_only_model && reader != nullptr) {
    rules.refuse({"save_only_model"},
                 rules
                     .error("CONFLICT", "key 'save_only_model': a run cannot go on from such checkpoints",
                            "save_only_model")
                     .got("true, beside " + std::string(reader))
                     .hint("leave it out; `tessera convert` makes a model folder of any checkpoint"));
  }
  if (rolls_back && recipe.save_strategy == Cadence::No) {
    rules.warn("spike_action",
               "key 'spike_action': this run saves no checkpoint to roll back to; write save_steps, "
               "saves_per_epoch or save_strategy");
  }
}

void validate_template(Rules& rules, const std::string& chat_template, const std::string& jinja,
                       const std::string& prefix) {
  const std::string name_key = prefix + "chat_template", jinja_key = prefix + "chat_template_jinja";
  if (chat_template == "jinja" && jinja.empty()) {
    rules.refuse({name_key, jinja_key},
                 rules.error("MISSING", "key '" + name_key + "': jinja needs '" + jinja_key + "'", name_key));
  }
  if (!jinja.empty() && !chat_template.empty() && chat_template != "jinja") {
    rules.refuse({jinja_key, name_key},
                 rules
                     .error("CONFLICT", "keys '" + name_key + "' and '" + jinja_key + "' exclude each other",
                            jinja_key)
                     .got("chat_template: " + chat_template)
                     .hint("chat_template: jinja uses the given template"));
  }
}

// A key that takes a share below 1 and a whole number of `unit` from 1 on.
void validate_share(Rules& rules, const std::string& key, double value, const std::string& unit) {
  if (value < 1.0 || value == std::floor(value)) return;
  rules.refuse({key}, rules.error("RANGE", "key '" + key + "': neither a share nor a number of " + unit, key)
                          .got(std::to_string(value))
                          .need("a number below 1, or a whole number of " + unit));
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
      rules.refuse({prefix + "type"},
                   rules.error("VALUE", "key '" + prefix + "type': no such style", prefix + "type")
                       .got(dataset.type)
                       .need(dataset.type.starts_with("reflection:") ? "reflection:instruct"
                                                                     : "instruct, chat, chatml or phi"));
    }
    for (const auto& [step, weight] : dataset.weight_from_step) {
      const ParsedInteger from = parse_integer(step);
      const double value = parse_number(weight).value_or(-1.0);
      if (from.status == IntegerStatus::Ok && from.value >= 1 && value >= 0.0 && value <= 1e9) continue;
      const std::string weights_key = prefix + "weight_from_step";
      rules.refuse(
          {weights_key},
          rules.error("WEIGHT", "key '" + weights_key + "' is a map from steps to weights", weights_key)
              .got(step + ": " + weight)
              .need("a step, from 1 on, and a weight from 0 to 1e+09"));
    }
    if (dataset.weight < 1e-9 && dataset.weight_from_step.empty()) {
      rules.refuse({prefix + "weight"},
                   rules.error("RANGE", "key '" + prefix + "weight': too small", prefix + "weight")
                       .got(std::to_string(dataset.weight))
                       .need("at least 1e-09, or 0 with a weight_from_step"));
    }
    if (dataset.shards_idx >= dataset.shards) {
      rules.refuse({prefix + "shards_idx", prefix + "shards"},
                   rules.error("RANGE", "key '" + prefix + "shards_idx': out of range", prefix + "shards_idx")
                       .got(std::to_string(dataset.shards_idx))
                       .need("below shards, which is " + std::to_string(dataset.shards)));
    }
  }
}

struct Excluded {
  const char* key;
  bool is_set;
  const char* hint;
};

// What a run without epochs cannot have, because of `key`, which is written as `shown`.
void validate_endless(Rules& rules, const std::string& key, const std::string& shown,
                      std::initializer_list<Excluded> excluded) {
  const Recipe& recipe = rules.recipe();
  std::vector<Excluded> lines = excluded;
  lines.insert(lines.end(), {{"evals_per_epoch", recipe.evals_per_epoch > 0.0, "write eval_steps"},
                             {"saves_per_epoch", recipe.saves_per_epoch > 0.0, "write save_steps"},
                             {"save_strategy", recipe.save_strategy == Cadence::Epoch, "write save_steps"}});
  for (const Excluded& line : lines) {
    if (!line.is_set) continue;
    rules.refuse(
        {line.key, key},
        rules
            .error("CONFLICT", std::string("keys '") + line.key + "' and '" + shown + "' exclude each other",
                   line.key)
            .hint(line.hint));
  }
  if (recipe.max_steps == 0) {
    rules.refuse({"max_steps", key},
                 rules.error("MISSING", "with '" + shown + "' the data have no end: 'max_steps' says it", key)
                     .got("no max_steps")
                     .need("the number of steps"));
  }
  if (recipe.key_places.contains("num_epochs"))
    rules.warn("num_epochs", "key 'num_epochs' has no effect with '" + shown + "': max_steps says the end");
}

// Rows that are prepared, and mixed by the step.
void validate_curriculum(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  const auto first = std::ranges::find_if(
      recipe.datasets, [](const DatasetConfig& dataset) { return !dataset.weight_from_step.empty(); });
  if (recipe.streaming || first == recipe.datasets.end()) return;
  const std::string key = "datasets." + std::to_string(first - recipe.datasets.begin()) + ".weight_from_step";
  validate_endless(
      rules, key, key,
      {{"mix_strategy", recipe.mix_strategy != "concat", "weights by step mix by themselves: leave it out"},
       {"mix_temperature", recipe.mix_temperature > 0.0, "write the weights out"},
       {"group_by_length", recipe.group_by_length, "neighbours come from other datasets"}});
}

// Rows that are made as the run goes have no number, and come in the order of their files.
void validate_streaming(Rules& rules) {
  const Recipe& recipe = rules.recipe();
  if (!recipe.streaming) {
    if (recipe.eval_sequence_len > 0 && recipe.test_datasets.empty())
      rules.warn("eval_sequence_len", "key 'eval_sequence_len' has no effect without 'test_datasets'");
    return;
  }
  const std::initializer_list<Excluded> excluded = {
      {"val_set_size", recipe.val_set_size > 0.0, "name evaluation rows in test_datasets"},
      {"dataset_exact_deduplication", recipe.dataset_exact_deduplication,
       "compare rows before: streaming: false with dataset_prepared_path"},
      {"dataset_near_deduplication", recipe.dataset_near_deduplication > 0.0,
       "compare rows before: streaming: false with dataset_prepared_path"},
      {"mix_temperature", recipe.mix_temperature > 0.0, "the sizes of streams are unknown: write weight"},
      {"mix_strategy", recipe.mix_strategy == "interleave_under",
       "streams have no end: they are mixed by weight"},
      {"group_by_length", recipe.group_by_length, "the lengths of streamed rows are not known before"}};
  validate_endless(rules, "streaming", "streaming: true", excluded);
}

Error exclusion(const Entry& a, const Entry& b) {
  return config_error("CONFLICT",
                      "keys '" + a.name_in_file() + "' (" + describe_place(a.key_place, b.key_place) +
                          ") and '" + b.name_in_file() + "' (" + describe_place(b.key_place, b.key_place) +
                          ") exclude each other",
                      b.key_place)
      .got(describe(a.value) + " and " + describe(b.value))
      .hint("keep one of them");
}

// Of two keys that exclude each other the one of the command line stays; else it is a problem.
void keep_one(Node& map, std::string_view first, std::string_view second, Problems& problems) {
  const Entry* a = map.find(first);
  const Entry* b = map.find(second);
  if (a == nullptr || b == nullptr || !is_active(a->value) || !is_active(b->value)) return;
  if (is_from_command_line(*a) != is_from_command_line(*b)) {
    map.erase(is_from_command_line(*a) ? second : first);
  } else {
    problems.add(second, to_key_place(b->key_place), exclusion(*a, *b));
  }
}

// A stream has no epochs: max_steps stands for num_epochs of them.
void resolve_epochs_of_streams(Node& map) {
  const auto number_of = [&](const char* key, double otherwise) {
    const Entry* entry = map.find(key);
    if (entry == nullptr || !entry->value.is_scalar()) return otherwise;
    return parse_number(entry->value.text).value_or(otherwise);
  };
  const Entry* streaming = map.find("streaming");
  const bool is_stream = streaming != nullptr && streaming->value.is_scalar() &&
                         parse_bool(streaming->value.text).value_or(false);
  const double steps = number_of("max_steps", 0.0), epochs = number_of("num_epochs", 1.0);
  if (!is_stream || !(steps >= 1.0) || !(epochs > 0.0)) return;
  for (const auto& [per_epoch, key] :
       {std::pair("saves_per_epoch", "save_steps"), std::pair("evals_per_epoch", "eval_steps")}) {
    const double times = number_of(per_epoch, 0.0) * epochs;
    const Entry* given = map.find(per_epoch);
    if (!(times > 0.0) || map.find(key) != nullptr) continue;
    const auto every = static_cast<int64_t>(std::ceil(std::clamp(steps / times, 1.0, steps)));
    Entry entry{key, given->key_place, make_scalar(std::to_string(every), given->value.place), per_epoch};
    map.erase(per_epoch);
    map.entries.push_back(std::move(entry));
  }
}

// Which of eval_strategy, eval_steps and evals_per_epoch counts, or of the keys for saving: a frequency means
// `steps`, one of zero `no`.
void resolve_cadence(Node& map, const char* strategy_key, std::initializer_list<const char*> frequencies,
                     Problems& problems) {
  const auto place = [&](const Entry& entry) { return entry.value.place; };
  const auto set = [&](const char* key, std::string value, const Entry& source) {
    map.entries.push_back({key, source.key_place, make_scalar(std::move(value), place(source)), source.key});
  };
  const Entry* frequency = nullptr;
  const Entry* given = nullptr;
  for (const char* key : frequencies) {
    const Entry* entry = map.find(key);
    if (entry == nullptr || entry->value.is_null()) continue;
    given = entry;
    if (is_active(entry->value)) frequency = entry;
  }
  const Entry* strategy = map.find(strategy_key);
  if (strategy == nullptr || strategy->value.is_null()) {
    if (given != nullptr) set(strategy_key, frequency != nullptr ? "steps" : "no", Entry(*given));
    return;
  }
  const bool is_steps = strategy->value.text == "steps";
  if (!is_steps && frequency != nullptr) {
    if (is_from_command_line(*strategy) == is_from_command_line(*frequency)) {
      problems.add(strategy_key, to_key_place(strategy->key_place), exclusion(*frequency, *strategy));
    } else if (is_from_command_line(*strategy)) {
      map.erase(std::string(frequency->key));
    } else {
      map.find(strategy_key)->value.text = "steps";
    }
  }
}

}  // namespace

void settle_keys(Node& map, Problems& problems) {
  for (const auto& [first, second] : kExclusive) keep_one(map, first, second, problems);
  resolve_epochs_of_streams(map);
  resolve_cadence(map, "eval_strategy", {"eval_steps", "evals_per_epoch"}, problems);
  resolve_cadence(map, "save_strategy", {"save_steps", "saves_per_epoch"}, problems);
  // The best values can come back where they are saved.
  const Entry* best = map.find("load_best_model_at_end");
  if (best != nullptr && best->value.is_scalar() && parse_bool(best->value.text).value_or(false) &&
      map.find("save_strategy") == nullptr) {
    map.entries.push_back(
        {"save_strategy", best->key_place, make_scalar("best", best->value.place), best->key});
  }
  if (const Entry* total = map.find("batch_size")) {
    const KeyPlace place = to_key_place(total->key_place);
    problems.attempt("gradient_accumulation_steps", place, [&] { resolve_batch_size(map); });
    map.erase("batch_size");
  }
}

void check_required(const Node& map, Problems& problems) {
  std::vector<std::string> missing;
  for (const std::string_view name : required_recipe_keys()) {
    if (problems.has(name)) continue;
    const Entry* entry = map.find(name);
    if (entry == nullptr || (entry->value.is_sequence() && entry->value.items.empty()) ||
        (entry->value.is_scalar() && entry->value.text.empty())) {
      missing.emplace_back(name);
    }
  }
  if (missing.empty()) return;
  Place file = map.place;
  file.line = file.column = 0;
  problems.add(missing.front(), to_key_place(file),
               config_error("MISSING",
                            missing.size() == 1 ? "missing key '" + missing[0] + "'"
                                                : "missing keys " + join(missing, ", "),
                            file)
                   .need(join(missing, ", ")));
}

void validate(const Recipe& recipe, Problems& problems) {
  Rules rules(recipe, problems);
  validate_share(rules, "val_set_size", recipe.val_set_size, "rows");
  validate_share(rules, "warmup_steps", recipe.warmup_steps.value_or(0.0), "steps");
  validate_share(rules, "logging_steps", recipe.logging_steps, "steps");
  validate_share(rules, "eval_steps", recipe.eval_steps, "steps");
  validate_share(rules, "save_steps", recipe.save_steps, "steps");
  if (recipe.auto_resume_from_checkpoints && recipe.save_strategy == Cadence::No) {
    rules.warn("auto_resume_from_checkpoints",
               "key 'auto_resume_from_checkpoints': this run saves no checkpoint to go on from; write "
               "save_steps, saves_per_epoch or save_strategy");
  }
  validate_saving(rules);
  if (recipe.dp_shard_size == 0) {
    rules.refuse({"dp_shard_size"}, rules.error("RANGE", "key 'dp_shard_size': out of range", "dp_shard_size")
                                        .got("0")
                                        .need("-1 (the ranks that remain) or at least 1"));
  }
  if (recipe.gradient_checkpointing_every > 1 && recipe.gradient_checkpointing != Checkpointing::Block) {
    rules.warn("gradient_checkpointing_every",
               "key 'gradient_checkpointing_every' has no effect without 'gradient_checkpointing: true'");
  }
  if (recipe.offload_optimizer_device != OffloadDevice::None && recipe.optimizer == OptimizerKind::Sgd) {
    rules.warn("offload_optimizer_device",
               "key 'offload_optimizer_device' has no effect with 'optimizer: sgd', which keeps no states");
  }
  if (recipe.offload_param_device != OffloadDevice::None && recipe.zero_stage != ZeroStage::Zero3) {
    rules.warn(
        "offload_param_device",
        "key 'offload_param_device' saves less without 'zero_stage: 3': gathered parameters stay on the "
        "device to the end of the step");
  }
  if (recipe.lr_scaling != LrScaling::None && recipe.base_batch_size == 0) {
    rules.refuse({"lr_scaling", "base_batch_size"},
                 rules.error("CONFLICT", "key 'lr_scaling' needs 'base_batch_size'", "lr_scaling")
                     .need("the sequences of a step that learning_rate is meant for"));
  }
  if (recipe.lr_scaling == LrScaling::None && recipe.base_batch_size > 0) {
    rules.warn("base_batch_size",
               "key 'base_batch_size' has no effect without 'lr_scaling: linear' or 'sqrt'");
  }
  const bool has_eval_data = recipe.val_set_size > 0.0 || !recipe.test_datasets.empty();
  if (!has_eval_data && recipe.eval_strategy == Cadence::Steps) {
    const std::string key = recipe.eval_steps > 0.0        ? "eval_steps"
                            : recipe.evals_per_epoch > 0.0 ? "evals_per_epoch"
                                                           : "eval_strategy";
    rules.warn(key, "key '" + key + "' has no effect without 'val_set_size' or 'test_datasets'");
  }
  if (recipe.min_sample_len > recipe.sequence_len) {
    const std::string key = recipe.key_places.contains("min_sample_len") ? "min_sample_len" : "sequence_len";
    rules.refuse(
        {key, "min_sample_len", "sequence_len"},
        rules.error("CONFLICT", "keys 'min_sample_len' and 'sequence_len': every row would be dropped", key)
            .got(std::to_string(recipe.min_sample_len) + " and " + std::to_string(recipe.sequence_len)));
  }
  validate_schedule(rules);
  validate_learning_rates(rules);
  validate_evaluation_readers(rules, has_eval_data);
  validate_trackers(rules);
  validate_order(rules);
  validate_streaming(rules);
  validate_curriculum(rules);
  validate_template(rules, recipe.chat_template, recipe.chat_template_jinja, "");
  validate_adapter(rules);
  validate_pipeline(rules);
  validate_deterministic(rules);
  validate_fp8(rules);
  validate_datasets(rules, recipe.datasets, "datasets");
  validate_datasets(rules, recipe.test_datasets, "test_datasets");
}

}  // namespace tessera::config
