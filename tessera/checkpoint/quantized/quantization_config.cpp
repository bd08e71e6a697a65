#include "tessera/checkpoint/quantized/quantization_config.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/checkpoint/quantized/formats.h"
#include "tessera/core/strings.h"
#include "tessera/io/file.h"
#include "tessera/io/json_file.h"

namespace tessera::checkpoint::quantized {
namespace {

constexpr std::pair<std::string_view, Method> kMethods[] = {
    {"bitsandbytes", Method::BitsAndBytes},
    {"bitsandbytes-4bit", Method::BitsAndBytes},
    {"bitsandbytes-8bit", Method::BitsAndBytes},
    {"gptq", Method::Gptq},
    {"gptqmodel", Method::Gptq},
    {"awq", Method::Awq},
    {"compressed-tensors", Method::CompressedTensors},
    {"fp8", Method::Fp8},
    {"finegrained-fp8", Method::Fp8},
    {"modelopt", Method::ModelOpt},
    {"modelopt-fp4", Method::ModelOpt},
    {"modelopt-fp8", Method::ModelOpt},
    {"mxfp4", Method::Mxfp4},
};

constexpr const char* kHint =
    "bitsandbytes, GPTQ, AWQ, compressed-tensors, fp8, ModelOpt and MXFP4 are read (docs/quantization.md); "
    "use the "
    "model from which the quantised one was made";

Method method_of(const io::JsonReader& keys) {
  std::string name = lower(keys.text("quant_method"));
  std::ranges::replace(name, '_', '-');
  for (const auto& [known, method] : kMethods) {
    if (name == known) return method;
  }
  refuse(keys, "quant_method", "weights quantised by '" + keys.text("quant_method") + "' cannot be read",
         kHint);
}

// Old files do not name their method, but each has keys that no other one has.
std::optional<Method> guess_method(const io::JsonReader& keys) {
  for (const char* key : {"load_in_4bit", "load_in_8bit", "_load_in_4bit", "_load_in_8bit"}) {
    if (keys.has(key)) return Method::BitsAndBytes;
  }
  if (keys.has("quant_algo")) return Method::ModelOpt;
  if (keys.has("config_groups")) return Method::CompressedTensors;
  if (keys.has("w_bit") || keys.has("zero_point")) return Method::Awq;
  if (keys.has("desc_act") || keys.has("checkpoint_format")) return Method::Gptq;
  return std::nullopt;
}

QuantizationConfig with_method(io::JsonReader keys) {
  if (keys.has("quant_method")) {
    const Method method = method_of(keys);
    return {method, std::move(keys)};
  }
  const std::optional<Method> method = guess_method(keys);
  if (!method) throw keys.problem("quant_method", "missing key").hint(kHint);
  return {*method, std::move(keys)};
}

// Returns the names of the groups that the object `key` of a JSON file has.
std::vector<std::string> group_names_of(const std::string& file, const std::string& key) {
  const nlohmann::json config = io::parse_json(io::JsonReader::read_text(file), file);
  std::vector<std::string> names;
  const auto outer = config.find(key);
  if (outer == config.end() || !outer->is_object() || !outer->contains("config_groups")) return names;
  const nlohmann::json& groups = outer->at("config_groups");
  if (!groups.is_object()) return names;
  for (const auto& [name, unused] : groups.items()) names.push_back(name);
  return names;
}

}  // namespace

void refuse(const io::JsonReader& config, const std::string& key, const std::string& what,
            const std::string& hint) {
  throw Error(ErrorKind::Model, "UNSUPPORTED", what).in(config.file() + ": key '" + key + "'").hint(hint);
}

std::optional<QuantizationConfig> read_quantization_config(const std::string& folder) {
  const std::string config_file = io::join_path(folder, "config.json");
  if (io::exists(config_file)) {
    const io::JsonReader config = io::JsonReader::open(config_file);
    for (const char* key : {"quantization_config", "compression_config"}) {
      auto keys = config.object(key);
      if (!keys) continue;
      QuantizationConfig found = with_method(std::move(*keys));
      found.group_names = group_names_of(config_file, key);
      return found;
    }
  }
  for (const char* name : {"quantize_config.json", "quant_config.json", "hf_quant_config.json"}) {
    const std::string file = io::join_path(folder, name);
    if (!io::exists(file)) continue;
    io::JsonReader keys = io::JsonReader::open(file);
    if (auto inner = keys.object("quantization")) keys = std::move(*inner);
    return with_method(std::move(keys));
  }
  return std::nullopt;
}

}  // namespace tessera::checkpoint::quantized
