// The keys that are not native: spellings of other tools that mean a native key, keys that need no
// action here, and keys that are known but not built. One table line a key.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace tessera::config {

enum class Rule {
  Rename,   // `target` is the native key; the value passes through
  Map,      // `target` is the native key, `values` lists "theirs=ours"; "theirs=" sets nothing, "theirs=!" is
            // known and not built, "*=!" says so of every other; without it others are unknown
  Ignore,   // no effect here: one warning, unless blank, false, none or one of `values`; `target` is the
            // reason
  Quiet,    // no effect needed, no word about it; `target` is the reason
  Refuse,   // would change results and is not built: `target` is the reason, `values` those that mean "off"
  Enter,    // a map with keys of its own: `target` is the path of its Section
  Special,  // `target` names a function of special_keys.cpp; `values` says what it does
  Hint,     // another tool's name: refused as unknown, pointing at `target`
};

struct ForeignKey {
  std::string_view name;  // a trailing * matches any rest
  Rule rule;
  std::string_view target = "";
  std::string_view values = "";
};

// Reasons that the keys of several tools have.
inline constexpr std::string_view kNotYet = "not built yet";
inline constexpr std::string_view kHow = "says how to compute, not what; the results are the same";
inline constexpr std::string_view kTold = "metrics.jsonl, TensorBoard and the progress line tell it anyway";
inline constexpr std::string_view kNoTracker =
    "not built; TensorBoard, Weights & Biases, MLflow, OpenTelemetry and Prometheus are";
inline constexpr std::string_view kReportTo =
    "`wandb` and `mlflow` mean `use_wandb: true` and `use_mlflow: true`; TensorBoard files and metrics.jsonl "
    "are written anyway; others have no effect, which one warning tells";
inline constexpr std::string_view kLess = "what is evaluated are losses, of which less is better";
inline constexpr std::string_view kPieces =
    "checkpoints are sharded and the result is one safetensors folder";
inline constexpr std::string_view kHub = "nothing is downloaded or uploaded";

// One map of a recipe.
struct Section {
  std::string_view path;          // "" = the recipe itself; "datasets" and "lr_groups" are one entry of it
  std::string_view strip_prefix;  // keys are accepted with and without it
  bool auto_is_unset;             // DeepSpeed: the value "auto" leaves the recipe's own
  std::span<const ForeignKey> keys;
};

// Of trainer_keys.cpp: its keys are no part of a recipe.
inline constexpr std::string_view kTrainerSection = "transformers";

// All sections; the first is the recipe itself.
std::span<const Section> sections();
// Those of them that are DeepSpeed's (deepspeed_keys.cpp), and those that are no part of a recipe
// (trainer_keys.cpp).
std::span<const Section> deepspeed_sections();
std::span<const Section> trainer_sections();
// Throws an Internal error when there is none.
const Section& section(std::string_view path);
// Exact names before prefixes, the longest prefix first; nullptr when unknown. `key` must already be free of
// strip_prefix.
const ForeignKey* find_foreign(const Section& section, std::string_view key);

}  // namespace tessera::config
