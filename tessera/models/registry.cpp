#include "tessera/models/registry.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/io/file.h"
#include "tessera/models/common/read_config.h"
#include "tessera/models/decoder/model.h"
#include "tessera/models/encoder/model.h"
#include "tessera/models/encoder_decoder/model.h"
#include "tessera/models/families/families.h"
#include "tessera/models/gpt2/config.h"
#include "tessera/models/gpt2/model.h"
#include "tessera/models/llama/config.h"
#include "tessera/models/llama/gguf.h"
#include "tessera/models/llama/kind.h"

namespace tessera::models {
namespace {

template <class Config, Config (*Read)(const io::JsonReader&)>
std::shared_ptr<ModelConfig> read_as(const io::JsonReader& reader) {
  return std::make_shared<Config>(Read(reader));
}

template <class Config, class Model>
std::shared_ptr<CausalLM> build_as(const ModelConfig& config, at::ScalarType dtype) {
  const auto* const own = dynamic_cast<const Config*>(&config);
  TESSERA_ASSERT(own != nullptr, "the config belongs to the family of its model_type");
  return std::make_shared<Model>(*own, dtype);
}

std::shared_ptr<CausalLM> build_llama(const ModelConfig& config, at::ScalarType dtype) {
  const auto* const own = dynamic_cast<const LlamaConfig*>(&config);
  TESSERA_ASSERT(own != nullptr, "a config of the Llama family");
  return std::make_shared<DecoderForCausalLM>(config, llama_decoder(*own), dtype);
}

std::shared_ptr<CausalLM> build_decoder(const ModelConfig& config, at::ScalarType dtype) {
  const auto* const own = dynamic_cast<const DecoderConfig*>(&config);
  TESSERA_ASSERT(own != nullptr, "a config with a description");
  return std::make_shared<DecoderForCausalLM>(config, own->decoder, dtype);
}

// Returns the row of a family whose reader describes its model.
template <DecoderConfig (*Read)(const io::JsonReader&)>
Family described(std::string model_type) {
  return {
      .model_types = {std::move(model_type)}, .read = read_as<DecoderConfig, Read>, .build = build_decoder};
}

template <EncoderConfig (*Read)(const io::JsonReader&)>
Family described(std::string model_type) {
  return {.model_types = {std::move(model_type)},
          .read = read_as<EncoderConfig, Read>,
          .build = build_as<EncoderConfig, EncoderModel>};
}

template <EncoderDecoderConfig (*Read)(const io::JsonReader&)>
Family described(std::string model_type) {
  return {.model_types = {std::move(model_type)},
          .read = read_as<EncoderDecoderConfig, Read>,
          .build = build_as<EncoderDecoderConfig, EncoderDecoderLM>};
}

// Refuses factors and bounds that a config.json has but its family does not read: a model that is like a
// known one but for them would give other numbers without a word.
void refuse_unread_factors(const io::JsonReader& reader) {
  constexpr std::pair<const char*, double> kNeutral[] = {{"attn_logit_softcapping", 0.0},
                                                         {"clip_qkv", 0.0},
                                                         {"embedding_multiplier", 1.0},
                                                         {"embedding_scale", 1.0},
                                                         {"final_logit_softcapping", 0.0},
                                                         {"logit_scale", 1.0},
                                                         {"logits_scaling", 1.0},
                                                         {"residual_multiplier", 1.0},
                                                         {"scale_depth", 0.0},
                                                         {"scale_emb", 1.0}};
  for (const auto& [key, neutral] : kNeutral) {
    if (reader.was_read(key) || reader.number(key, -1e30, 1e30, neutral) == neutral) continue;
    throw unsupported(reader, key,
                      "this key changes the model's numbers, and its model_type is read without it")
        .need("no such key, or its neutral value");
  }
}

// A multimodal model whose text part can be read alone, with the defaults of its configuration class.
struct WholeType {
  const char* model_type;
  const char* text_type;
  bool is_tied;
};
constexpr WholeType kWholeTypes[] = {
    {"gemma3", "gemma3_text", true},    {"gemma4", "gemma4_text", true},
    {"llama4", "llama4_text", false},   {"llava", "llama", false},
    {"llava_next", "llama", false},     {"mistral3", "mistral", true},
    {"qwen3_5", "qwen3_5_text", false}, {"qwen3_5_moe", "qwen3_5_moe_text", false}};

// Returns the text of `text_config` as that of a model of its own. The whole model says whether embeddings
// are tied and of what type the weights are, and its special tokens go first.
std::string text_config(const std::string& whole_text, const io::JsonReader& whole_reader,
                        const WholeType& type) {
  if (!whole_reader.object("text_config")) throw whole_reader.problem("text_config", "missing key");
  const auto whole = nlohmann::json::parse(whole_text);
  nlohmann::json text = whole.at("text_config");
  if (!text.contains("model_type")) text["model_type"] = type.text_type;
  text["tie_word_embeddings"] = type.is_tied;
  for (const char* key : {"tie_word_embeddings", "dtype", "torch_dtype", "bos_token_id", "eos_token_id",
                          "pad_token_id", "quantization_config"}) {
    if (whole.contains(key) && !whole.at(key).is_null()) text[key] = whole.at(key);
  }
  return text.dump();
}

std::vector<std::string> known_model_types() {
  std::vector<std::string> names;
  for (const Family& family : families()) {
    names.insert(names.end(), family.model_types.begin(), family.model_types.end());
  }
  for (const WholeType& type : kWholeTypes) names.emplace_back(type.model_type);
  return names;
}

}  // namespace

// A new family adds one row here.
const std::vector<Family>& families() {
  static const std::vector<Family> table = {
      {.model_types = llama_model_types(),
       .read = read_as<LlamaConfig, read_llama_config>,
       .build = build_llama,
       .gguf = llama_gguf_architectures(),
       .add_gguf_metadata = add_llama_gguf_metadata},
      {.model_types = {"gpt2"},
       .read = read_as<Gpt2Config, read_gpt2_config>,
       .build = build_as<Gpt2Config, Gpt2ForCausalLM>},
      described<read_apertus>("apertus"),
      described<read_arcee>("arcee"),
      described<read_bert>("bert"),
      described<read_bloom>("bloom"),
      described<read_cohere>("cohere"),
      described<read_cohere2>("cohere2"),
      described<read_deepseek_v2>("deepseek_v2"),
      described<read_deepseek_v3>("deepseek_v3"),
      described<read_distilbert>("distilbert"),
      described<read_exaone4>("exaone4"),
      described<read_falcon>("falcon"),
      described<read_gemma>("gemma"),
      described<read_gemma2>("gemma2"),
      described<read_gemma3>("gemma3_text"),
      described<read_gemma4>("gemma4_text"),
      described<read_glm>("glm"),
      described<read_glm4>("glm4"),
      described<read_glm4_moe>("glm4_moe"),
      described<read_glm4_moe_lite>("glm4_moe_lite"),
      described<read_gpt_neox>("gpt_neox"),
      described<read_gpt_oss>("gpt_oss"),
      described<read_gptj>("gptj"),
      described<read_granite>("granite"),
      described<read_granite_moe>("granitemoe"),
      described<read_helium>("helium"),
      described<read_hunyuan>("hunyuan_v1_dense"),
      described<read_lfm2>("lfm2"),
      described<read_lfm2_moe>("lfm2_moe"),
      described<read_llama4>("llama4_text"),
      described<read_ministral>("ministral"),
      described<read_ministral3>("ministral3"),
      described<read_mistral4>("mistral4"),
      described<read_modernbert>("modernbert"),
      described<read_mpt>("mpt"),
      described<read_mt5>("mt5"),
      described<read_nemotron>("nemotron"),
      described<read_olmo>("olmo"),
      described<read_olmo2>("olmo2"),
      described<read_olmo3>("olmo3"),
      described<read_olmoe>("olmoe"),
      described<read_opt>("opt"),
      described<read_phi>("phi"),
      described<read_phi3>("phi3"),
      described<read_qwen2_moe>("qwen2_moe"),
      described<read_qwen3_5>("qwen3_5_text"),
      described<read_qwen3_5_moe>("qwen3_5_moe_text"),
      described<read_qwen3_next>("qwen3_next"),
      described<read_roberta>("roberta"),
      described<read_seed_oss>("seed_oss"),
      described<read_smollm3>("smollm3"),
      described<read_stablelm>("stablelm"),
      described<read_starcoder2>("starcoder2"),
      described<read_t5>("t5"),
      described<read_umt5>("umt5"),
  };
  return table;
}

const Family* find_family(const std::string& model_type) {
  for (const Family& family : families()) {
    if (std::ranges::count(family.model_types, model_type) > 0) return &family;
  }
  return nullptr;
}

std::shared_ptr<const ModelConfig> read_model_config(const std::string& path) {
  const std::string file = path.ends_with(".json") ? path : io::join_path(path, "config.json");
  return parse_model_config(io::JsonReader::read_text(file), file);
}

namespace {

// A configuration with the object of the file that it was read from.
struct ReadConfig {
  std::shared_ptr<const ModelConfig> config;
  io::JsonReader reader;
};

ReadConfig read_config(const std::string& text, const std::string& file) {
  const io::JsonReader top = io::JsonReader::parse(text, file);
  const auto whole = std::ranges::find(kWholeTypes, top.text("model_type"), &WholeType::model_type);
  const bool is_text_part = whole != std::end(kWholeTypes);
  const std::string prefix = is_text_part ? "text_config." : "";
  const io::JsonReader reader =
      is_text_part ? io::JsonReader::parse(text_config(text, top, *whole), file, prefix) : top;
  const std::string type = reader.text("model_type");
  if (const Family* const family = find_family(type)) {
    const std::shared_ptr<ModelConfig> config = family->read(reader);
    refuse_unread_factors(reader);
    config->is_text_part = is_text_part;
    return {config, reader};
  }
  throw Error(ErrorKind::Model, "UNSUPPORTED", "unknown model_type '" + type + "'")
      .in(file + ": key '" + prefix + "model_type'")
      .need(join(known_model_types(), ", "));
}

}  // namespace

std::shared_ptr<const ModelConfig> parse_model_config(const std::string& text, const std::string& file) {
  return read_config(text, file).config;
}

std::vector<std::string> unread_config_keys(const std::string& text, const std::string& file) {
  const ReadConfig read = read_config(text, file);
  auto json = nlohmann::ordered_json::parse(text);
  if (read.config->is_text_part) json = nlohmann::ordered_json(json["text_config"]);
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) {
    if (!value.is_null() && !read.reader.was_read(key)) keys.push_back(key);
  }
  return keys;
}

std::vector<std::pair<std::string, std::string>> whole_model_types() {
  std::vector<std::pair<std::string, std::string>> types;
  for (const WholeType& type : kWholeTypes) types.emplace_back(type.model_type, type.text_type);
  return types;
}

std::shared_ptr<CausalLM> build_model(const ModelConfig& config, at::ScalarType dtype) {
  const Family* const family = find_family(config.model_type);
  TESSERA_ASSERT(family != nullptr, "no family builds model_type " + config.model_type);
  return family->build(config, dtype);
}

std::shared_ptr<CausalLM> build_model(const std::string& path, at::ScalarType dtype) {
  return build_model(*read_model_config(path), dtype);
}

const std::vector<checkpoint::GgufArchitecture>& gguf_architectures() {
  static const std::vector<checkpoint::GgufArchitecture> known = [] {
    std::vector<checkpoint::GgufArchitecture> all;
    for (const Family& family : families()) all.insert(all.end(), family.gguf.begin(), family.gguf.end());
    return all;
  }();
  return known;
}

}  // namespace tessera::models
