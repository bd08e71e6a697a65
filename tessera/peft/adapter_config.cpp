#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/io/file.h"
#include "tessera/io/json_reader.h"
#include "tessera/peft/adapter_files.h"

namespace tessera::peft {
namespace {

Error unsupported(const io::JsonReader& reader, const std::string& key) {
  return Error(ErrorKind::Model, "UNSUPPORTED", "'" + key + "' of the adapter is not implemented")
      .in(reader.file() + ": key '" + key + "'");
}

// Refuses features that change what the adapter computes, each by the key that switches it on.
void refuse_unsupported(const io::JsonReader& reader) {
  for (const char* key : {"use_dora", "lora_bias", "use_qalora"}) {
    if (reader.boolean(key, false)) throw unsupported(reader, key);
  }
  for (const char* key :
       {"rank_pattern", "alpha_pattern", "layers_to_transform", "layer_replication", "exclude_modules",
        "trainable_token_indices", "target_parameters", "alora_invocation_tokens", "use_bdlora",
        "arrow_config", "kasa_config", "monteclora_config", "velora_config"}) {
    if (!reader.is_empty(key)) throw unsupported(reader, key);
  }
  const std::string bias = reader.text("bias", "none");
  if (bias != "none") throw unsupported(reader, "bias").got(bias).need("none");
  // Accepted are only initialisations that leave the base weights as they are: the factors in the file then
  // hold the whole change.
  if (reader.is_text("init_lora_weights")) {
    const std::string kind = reader.text("init_lora_weights");
    if (kind != "gaussian" && kind != "eva" && kind != "orthogonal") {
      throw unsupported(reader, "init_lora_weights").got(kind).hint("save it as an ordinary LoRA adapter");
    }
  }
}

}  // namespace

AdapterConfig read_adapter_config(const std::string& folder) {
  const io::JsonReader reader = io::JsonReader::open(io::join_path(folder, "adapter_config.json"));
  AdapterConfig config;
  config.source_file = reader.file();
  const std::string type = reader.text("peft_type");
  if (type != "LORA") throw unsupported(reader, "peft_type").got(type).need("LORA");
  refuse_unsupported(reader);
  config.base_model = reader.text("base_model_name_or_path", "");
  config.revision = reader.text("revision", "");
  config.fan_in_fan_out = reader.boolean("fan_in_fan_out", false);
  LoraOptions& options = config.options;
  options.rank = reader.integer("r", 1, 1 << 20);
  options.alpha = reader.number("lora_alpha", 1e-9, 1e9, 8.0);
  options.dropout = reader.number("lora_dropout", 0.0, 0.999999, 0.0);
  options.use_rslora = reader.boolean("use_rslora", false);
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
  if (options.target_modules.empty() && options.target_regex.empty() && !options.all_linear) {
    throw reader.problem("target_modules", "names no module").need("a list of names, or one expression");
  }
  return config;
}

}  // namespace tessera::peft
