#include "tessera/config/settle_keys.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "tessera/config/scalar.h"
#include "tessera/config/schema.h"
#include "tessera/config/values.h"
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
    {"lora_exclude_modules", "lora_exclude_regex"},
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

// Replaces batch_size (rows of a rank and a step) by gradient_accumulation_steps = batch_size /
// micro_batch_size.
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

Error exclusion(const Entry& a, const Entry& b) {
  return config_error("CONFLICT",
                      "keys '" + a.name_in_file() + "' (" + describe_place(a.key_place, b.key_place) +
                          ") and '" + b.name_in_file() + "' (" + describe_place(b.key_place, b.key_place) +
                          ") exclude each other",
                      b.key_place)
      .got(describe(a.value) + " and " + describe(b.value))
      .hint("keep one of them");
}

// Keeps one of two keys that exclude each other: the one from the command line. If both are from there, or
// both from files, adds a problem.
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

// Turns times per epoch into steps for a stream, which has no epochs: max_steps stands for num_epochs of
// them.
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

// Makes the strategy key (eval_strategy or save_strategy) agree with its frequency keys (eval_steps,
// evals_per_epoch or their like): without a strategy a frequency sets `steps`, and a frequency of zero sets
// `no`.
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

// `adapter: qlora` is LoRA on a base in four bits.
void resolve_qlora(Node& map) {
  const Entry* adapter = map.find("adapter");
  if (adapter == nullptr || !adapter->value.is_scalar() || canonical(adapter->value) != "qlora") return;
  const Entry* four_bits = map.find("load_in_4bit");
  if (four_bits == nullptr || four_bits->value.is_null()) {
    map.erase("load_in_4bit");
    map.entries.push_back(
        {"load_in_4bit", adapter->key_place, make_scalar("true", adapter->value.place), "adapter"});
    return;
  }
  if (four_bits->value.is_scalar() && parse_bool(four_bits->value.text).value_or(true)) return;
  throw config_error("CONFLICT", "keys 'adapter: qlora' and 'load_in_4bit: false' exclude each other",
                     four_bits->key_place)
      .hint("write adapter: lora, or leave out load_in_4bit");
}

void settle_keys(Node& map, Problems& problems) {
  if (const Entry* adapter = map.find("adapter")) {
    problems.attempt("adapter", to_key_place(adapter->key_place), [&] { resolve_qlora(map); });
  }
  for (const auto& [first, second] : kExclusive) keep_one(map, first, second, problems);
  resolve_epochs_of_streams(map);
  resolve_cadence(map, "eval_strategy", {"eval_steps", "evals_per_epoch"}, problems);
  resolve_cadence(map, "save_strategy", {"save_steps", "saves_per_epoch"}, problems);
  // The best values can only come back if they are saved, so load_best_model_at_end alone means
  // save_strategy: best.
  const Entry* best = map.find("load_best_model_at_end");
  if (best != nullptr && best->value.is_scalar() && parse_bool(best->value.text).value_or(false) &&
      map.find("save_strategy") == nullptr) {
    map.entries.push_back(
        {"save_strategy", best->key_place, make_scalar("best", best->value.place), best->key});
  }
  // A recipe that says when to save, or that it never does, is saved by time only where it says so, too, and
  // so is one whose checkpoints serve no restart.
  const Entry* saving = map.find("save_strategy");
  if (saving == nullptr || saving->value.is_null()) {
    saving = map.find("save_only_model");
    if (saving != nullptr && !(saving->value.is_scalar() && parse_bool(saving->value.text).value_or(false))) {
      saving = nullptr;
    }
  }
  if (saving != nullptr && map.find("save_minutes") == nullptr) {
    map.entries.push_back(
        {"save_minutes", saving->key_place, make_scalar("0", saving->value.place), saving->key});
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

}  // namespace tessera::config
