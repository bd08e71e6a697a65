#include "tessera/models/registry.h"

#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/io/file.h"
#include "tessera/io/json_reader.h"
#include "tessera/models/gpt2/config.h"
#include "tessera/models/gpt2/model.h"
#include "tessera/models/llama/config.h"
#include "tessera/models/llama/model.h"

namespace tessera::models {
namespace {

struct Family {
  std::vector<std::string> model_types;
  std::shared_ptr<const ModelConfig> (*read)(const io::JsonReader&);
  // Returns null if the config belongs to another family.
  std::shared_ptr<CausalLM> (*build)(const ModelConfig&, at::ScalarType);
};

template <class Config, Config (*Read)(const io::JsonReader&)>
std::shared_ptr<const ModelConfig> read_as(const io::JsonReader& reader) {
  return std::make_shared<const Config>(Read(reader));
}

template <class Config, class Model>
std::shared_ptr<CausalLM> build_as(const ModelConfig& config, at::ScalarType dtype) {
  const auto* own = dynamic_cast<const Config*>(&config);
  return own == nullptr ? nullptr : std::make_shared<Model>(*own, dtype);
}

// A new family adds one entry here.
const std::vector<Family>& families() {
  static const std::vector<Family> table = {
      {{"llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe"},
       read_as<LlamaConfig, read_llama_config>,
       build_as<LlamaConfig, LlamaForCausalLM>},
      {{"gpt2"}, read_as<Gpt2Config, read_gpt2_config>, build_as<Gpt2Config, Gpt2ForCausalLM>},
  };
  return table;
}

}  // namespace

std::vector<std::string> known_model_types() {
  std::vector<std::string> names;
  for (const Family& family : families()) {
    names.insert(names.end(), family.model_types.begin(), family.model_types.end());
  }
  return names;
}

std::shared_ptr<const ModelConfig> read_model_config(const std::string& path) {
  const std::string file = path.ends_with(".json") ? path : io::join_path(path, "config.json");
  return parse_model_config(io::JsonReader::read_text(file), file);
}

std::shared_ptr<const ModelConfig> parse_model_config(const std::string& text, const std::string& file) {
  const io::JsonReader reader = io::JsonReader::parse(text, file);
  const std::string type = reader.text("model_type");
  for (const Family& family : families()) {
    const auto& types = family.model_types;
    if (std::find(types.begin(), types.end(), type) != types.end()) return family.read(reader);
  }
  throw Error(ErrorKind::Model, "UNSUPPORTED", "unknown model_type '" + type + "'")
      .in(file + ": key 'model_type'")
      .need(join(known_model_types(), ", "));
}

std::shared_ptr<CausalLM> build_model(const ModelConfig& config, at::ScalarType dtype) {
  for (const Family& family : families()) {
    if (auto model = family.build(config, dtype)) return model;
  }
  throw_internal(__FILE__, __LINE__, "family", "no family builds model_type " + config.model_type);
}

std::shared_ptr<CausalLM> build_model(const std::string& path, at::ScalarType dtype) {
  return build_model(*read_model_config(path), dtype);
}

}  // namespace tessera::models
