// The keys that are not native: spellings of other tools that mean a native key, keys that need no
// action here, and keys that are known but not supported. One table line a key.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace tessera::config {

enum class Rule {
  Rename,   // `target` is the native key; the value passes through
  Map,      // `target` is the native key, `values` lists "theirs=ours"; "theirs=" sets nothing, "theirs=!" is
            // known but not supported, "*=!" makes every other value so; without it other values are unknown
  Ignore,   // no effect here: one warning, unless the value is blank, false, none or one of `values`;
            // `target` is the reason
  Quiet,    // no effect and no warning; `target` is the reason
  Refuse,   // would change results and is not supported: `target` is the reason, `values` are the values that
            // mean "off"
  Enter,    // a map with keys of its own: `target` is the path of its Section
  Special,  // handled by a function of special_keys.cpp that `target` names; `values` says for the keys' page
            // what it does
  Hint,     // another tool's name for the native key `target`: refused as unknown, with "did you mean"
};

struct ForeignKey {
  std::string_view name;  // a trailing * matches any rest
  Rule rule;
  std::string_view target = "";
  std::string_view values = "";
};

// Reasons that the tables of several tools use.
inline constexpr std::string_view kNotYet = "not supported yet";
inline constexpr std::string_view kHow = "affects how results are computed, not the results";
inline constexpr std::string_view kTold = "metrics.jsonl, TensorBoard and the progress line show this anyway";
inline constexpr std::string_view kNoTracker =
    "not supported, unlike TensorBoard, Weights & Biases, MLflow, OpenTelemetry and Prometheus";
inline constexpr std::string_view kReportTo =
    "`wandb` and `mlflow` mean `use_wandb: true` and `use_mlflow: true`; TensorBoard files and metrics.jsonl "
    "are written anyway; others have no effect, with one warning";
inline constexpr std::string_view kLess =
    "evaluations measure losses, of which lower is better, or the metrics of a classifier, of which each is "
    "known; leave it out";
inline constexpr std::string_view kPieces =
    "checkpoints are sharded and the result is one safetensors folder";
inline constexpr std::string_view kHub = "the result alone is uploaded, to hub_model_id";
inline constexpr std::string_view kToken = "HF_TOKEN holds the access token for the hub";

// One kind of map that a recipe or a file of another tool holds, and its keys that are not native.
struct Section {
  std::string_view path;          // "" = the recipe; "datasets" and "lr_groups" = one entry of the list
  std::string_view strip_prefix;  // keys are accepted with and without it
  bool auto_is_unset;             // the value "auto" counts as unset (DeepSpeed, Transformers)
  std::span<const ForeignKey> keys;
};

// Path of the section of trainer_keys.cpp, whose keys are no part of a recipe.
inline constexpr std::string_view kTrainerSection = "transformers";

// Returns all sections; the first is the recipe itself.
std::span<const Section> sections();
// DeepSpeed's sections (deepspeed_keys.cpp) and the trainers' (trainer_keys.cpp); sections() holds both.
std::span<const Section> deepspeed_sections();
std::span<const Section> trainer_sections();
// Returns the section at `path`. Throws an Internal error when there is none.
const Section& section(std::string_view path);
// Returns the table line for `key`, which must already be free of strip_prefix: an exact name before a
// prefix, the longest prefix first. nullptr when no line fits.
const ForeignKey* find_foreign(const Section& section, std::string_view key);

}  // namespace tessera::config
