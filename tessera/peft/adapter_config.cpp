#include <algorithm>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/io/file.h"
#include "tessera/io/json_reader.h"
#include "tessera/peft/adapter_files.h"
#include "tessera/peft/targets.h"

namespace tessera::peft {
namespace {

Error unsupported(const io::JsonReader& reader, const std::string& key) {
  return Error(ErrorKind::Model, "UNSUPPORTED", "'" + key + "' of the adapter is not implemented")
      .in(reader.file() + ": key '" + key + "'");
}

// Refuses features that change what the adapter computes, each by the key that switches it on.
void refuse_unsupported(const io::JsonReader& reader) {
  if (reader.boolean("use_qalora", false)) throw unsupported(reader, "use_qalora");
  for (const char* key : {"layer_replication", "alora_invocation_tokens", "use_bdlora", "arrow_config",
                          "kasa_config", "monteclora_config", "velora_config"}) {
    if (!reader.is_empty(key)) throw unsupported(reader, key);
  }
  // Accepted are only initialisations that leave the base weights as they are: the factors in the file then
  // hold the whole change.
  if (reader.is_text("init_lora_weights")) {
    const std::string kind = reader.text("init_lora_weights");
    if (kind != "gaussian" && kind != "eva" && kind != "orthogonal") {
      throw unsupported(reader, "init_lora_weights").got(kind).hint("save it as an ordinary LoRA adapter");
    }
  }
}

// Reads a table of numbers by the names of layers, in the order of the file: the first name that fits counts.
template <class T, class Read>
std::vector<std::pair<std::string, T>> read_pattern(const io::JsonReader& reader,
                                                    const nlohmann::ordered_json& json, const char* key,
                                                    const Read& read) {
  std::vector<std::pair<std::string, T>> pattern;
  const auto object = reader.object(key);
  if (!object) return pattern;
  for (const auto& [name, value] : json.at(key).items()) pattern.emplace_back(name, read(*object, name));
  return pattern;
}

AdapterMethod read_method(const io::JsonReader& reader) {
  const std::string type = reader.text("peft_type");
  if (type == "LORA") return AdapterMethod::Lora;
  if (type == "IA3") return AdapterMethod::Ia3;
  if (type == "LN_TUNING") return AdapterMethod::Norms;
  if (type == "VERA") return AdapterMethod::Vera;
  if (type == "PROMPT_TUNING") return AdapterMethod::Prompt;
  throw unsupported(reader, "peft_type").got(type).need("LORA, IA3, LN_TUNING, VERA or PROMPT_TUNING");
}

void read_exclusions(const io::JsonReader& reader, LoraOptions& options) {
  if (reader.is_text("exclude_modules")) {
    options.exclude_regex = reader.text("exclude_modules");
  } else {
    options.exclude_modules = reader.texts("exclude_modules");
  }
}

// A list, or such a list by the name of a table.
void read_token_indices(const io::JsonReader& reader, const nlohmann::ordered_json& json,
                        LoraOptions& options) {
  const char* const key = "trainable_token_indices";
  if (reader.is_empty(key)) return;
  constexpr int64_t kMost = int64_t{1} << 40;
  if (!json.at(key).is_object()) {
    options.trainable_token_indices = reader.integers(key, 0, kMost);
    return;
  }
  const auto object = reader.object(key);
  const std::string table = json.at(key).begin().key(), kind = last_component(table);
  if (json.at(key).size() != 1 || (kind != "embed_tokens" && kind != "wte"))
    throw unsupported(reader, key).got("'" + table + "'").need("rows of the token embedding alone");
  options.trainable_token_indices = object->integers(table, 0, kMost);
}

void read_layers(const io::JsonReader& reader, LoraOptions& options) {
  options.layers_to_transform = reader.integers("layers_to_transform", 0, 1 << 20);
  options.layers_pattern = reader.is_text("layers_pattern")
                               ? std::vector<std::string>{reader.text("layers_pattern")}
                               : reader.texts("layers_pattern");
  std::erase(options.layers_pattern, "");
  // PEFT reads them only beside a list of names.
  if (!options.target_regex.empty()) options.layers_to_transform.clear();
}

void require_no_bias(const io::JsonReader& reader) {
  const std::string bias = reader.text("bias", "none");
  if (bias != "none") throw unsupported(reader, "bias").got(bias).need("none");
}

void read_vera(const io::JsonReader& reader, LoraOptions& options) {
  require_no_bias(reader);
  options.dropout = reader.number("vera_dropout", 0.0, 0.999999, 0.0);
  options.vera.rank = reader.integer("r", 1, 1 << 20, 256);
  options.vera.d_initial = reader.number("d_initial", -1e9, 1e9, 0.1);
  options.vera.projection_prng_key =
      reader.integer("projection_prng_key", 0, std::numeric_limits<int64_t>::max(), 0);
  options.vera.save_projection = reader.boolean("save_projection", true);
  read_layers(reader, options);
}

void read_prompt(const io::JsonReader& reader, LoraOptions& options) {
  options.prompt.num_virtual_tokens = reader.integer("num_virtual_tokens", 1, 65536);
  if (reader.integer("num_transformer_submodules", 1, 2, 1) != 1)
    throw unsupported(reader, "num_transformer_submodules").got("2").need("1, as of a causal model");
}

void read_ia3(const io::JsonReader& reader, LoraOptions& options) {
  // PEFT takes one text for an expression.
  if (reader.is_text("feedforward_modules"))
    throw unsupported(reader, "feedforward_modules").got("an expression").need("a list of names");
  options.feedforward_modules = reader.texts("feedforward_modules");
  std::sort(options.feedforward_modules.begin(), options.feedforward_modules.end());
}

// Reads the keys of LoRA alone.
void read_lora(const io::JsonReader& reader, const std::string& text, LoraOptions& options) {
  refuse_unsupported(reader);
  require_no_bias(reader);
  options.rank = reader.integer("r", 1, 1 << 20);
  options.alpha = reader.number("lora_alpha", 1e-9, 1e9, 8.0);
  options.dropout = reader.number("lora_dropout", 0.0, 0.999999, 0.0);
  options.use_rslora = reader.boolean("use_rslora", false);
  options.use_dora = reader.boolean("use_dora", false);
  options.has_bias = reader.boolean("lora_bias", false);
  options.target_parameters = reader.texts("target_parameters");
  std::sort(options.target_parameters.begin(), options.target_parameters.end());
  read_layers(reader, options);
  const auto json = nlohmann::ordered_json::parse(text);
  read_token_indices(reader, json, options);
  options.rank_pattern = read_pattern<int64_t>(
      reader, json, "rank_pattern",
      [](const io::JsonReader& object, const std::string& name) { return object.integer(name, 1, 1 << 20); });
  options.alpha_pattern = read_pattern<double>(
      reader, json, "alpha_pattern",
      [](const io::JsonReader& object, const std::string& name) { return object.number(name, 1e-9, 1e9); });
}

}  // namespace

AdapterConfig read_adapter_config(const std::string& folder) {
  const std::string file = io::join_path(folder, "adapter_config.json");
  const std::string text = io::JsonReader::read_text(file);
  const io::JsonReader reader = io::JsonReader::parse(text, file);
  AdapterConfig config;
  config.source_file = reader.file();
  const AdapterMethod method = config.options.method = read_method(reader);
  config.base_model = reader.text("base_model_name_or_path", "");
  config.revision = reader.text("revision", "");
  config.fan_in_fan_out = reader.boolean("fan_in_fan_out", false);
  LoraOptions& options = config.options;
  options.modules_to_save = reader.texts("modules_to_save");
  if (reader.is_text("target_modules")) {
    options.target_regex = reader.text("target_modules");
    if (options.target_regex == "all-linear") {
      options.target_regex.clear();
      options.all_linear = true;
    }
  } else {
    options.target_modules = reader.texts("target_modules");
    std::sort(options.target_modules.begin(), options.target_modules.end());
  }
  read_exclusions(reader, options);
  if (method == AdapterMethod::Lora) read_lora(reader, text, options);
  if (method == AdapterMethod::Ia3) read_ia3(reader, options);
  if (method == AdapterMethod::Vera) read_vera(reader, options);
  if (method == AdapterMethod::Prompt) read_prompt(reader, options);
  if (options.target_modules.empty() && options.target_regex.empty() && !options.all_linear &&
      options.target_parameters.empty() && method != AdapterMethod::Prompt) {
    throw reader.problem("target_modules", "names no module").need("a list of names, or one expression");
  }
  return config;
}

}  // namespace tessera::peft
