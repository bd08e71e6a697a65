#include "tessera/models/common/classifier_config.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"

namespace tessera::models {
namespace {

// Families for which Transformers 5 has no *ForSequenceClassification.
constexpr const char* kWithoutClassifier[] = {"cohere",  "cohere2",    "glm4_moe", "glm4_moe_lite",
                                              "granite", "granitemoe", "olmoe",    "qwen3_5_moe_text"};
// Families for which it has no *ForTokenClassification.
constexpr const char* kWithoutTokenClassifier[] = {
    "cohere", "cohere2", "deepseek_v2", "gemma3_text", "gemma4_text", "glm4_moe",         "glm4_moe_lite",
    "gptj",   "granite", "granitemoe",  "lfm2",        "lfm2_moe",    "hunyuan_v1_dense", "llama4_text",
    "olmo",   "olmo2",   "olmo3",       "olmoe",       "opt",         "qwen3_5_moe_text"};

Error refusal(const ModelConfig& config, const std::string& what) {
  return Error(ErrorKind::Model, "CLASSIFIER", what).in(config.source_file);
}

// Returns the family of the class that the file, a config.json, names.
std::string family_of(const ModelConfig& config, const std::string& file) {
  const auto given = nlohmann::json::parse(file).value("architectures", nlohmann::json());
  std::string family =
      given.is_array() && !given.empty() ? architecture_family(given[0].get<std::string>()) : "";
  if (!family.empty()) return family;
  throw refusal(config, "key 'architectures' does not name the class of the model")
      .need("one name, such as [\"BertForMaskedLM\"]")
      .hint("write it with model_config.architectures");
}

}  // namespace

std::string architecture_family(const std::string& architecture) {
  for (const char* ending : {"LMHeadModel", "Model"}) {
    if (architecture.ends_with(ending))
      return architecture.substr(0, architecture.size() - std::string_view(ending).size());
  }
  const size_t head = architecture.rfind("For");
  return head == std::string::npos ? "" : architecture.substr(0, head);
}

std::map<std::string, std::string> classifier_config(const ModelConfig& config, const std::string& file,
                                                     const Classification& classification) {
  if (config.is_text_part) throw refusal(config, "a multimodal model cannot become a classifier");
  const bool of_tokens = classification.of_tokens();
  if (of_tokens ? std::ranges::count(kWithoutTokenClassifier, config.model_type) > 0
                : std::ranges::count(kWithoutClassifier, config.model_type) > 0) {
    throw refusal(config, std::string("Transformers has no classifier of ") +
                              (of_tokens ? "tokens" : "texts") + " of model_type '" + config.model_type +
                              "', so that nothing could load the result");
  }
  const std::string family = family_of(config, file);
  nlohmann::ordered_json names, numbers;
  for (int64_t i = 0; i < classification.num_labels(); ++i) {
    const std::string& label = classification.labels[static_cast<size_t>(i)];
    names[std::to_string(i)] = label;
    numbers[label] = i;
  }
  std::map<std::string, std::string> values = {
      {"architectures",
       nlohmann::json({family + (of_tokens ? "ForTokenClassification" : "ForSequenceClassification")})
           .dump()},
      {"id2label", names.dump()},
      {"label2id", numbers.dump()}};
  if (!of_tokens) values["problem_type"] = nlohmann::json(problem_type_name(classification.problem)).dump();
  if (!config.is_encoder && !config.pad_token_id && !config.eos_token_ids.empty())
    values["pad_token_id"] = std::to_string(config.eos_token_ids.front());
  return values;
}

std::map<std::string, std::string> masked_lm_config(const ModelConfig& config, const std::string& file) {
  if (!config.is_encoder) {
    throw Error(ErrorKind::Model, "MASKED-LM", "only an encoder becomes a masked language model")
        .in(config.source_file)
        .got("model_type " + config.model_type)
        .need("bert, roberta, distilbert or modernbert");
  }
  return {{"architectures", nlohmann::json({family_of(config, file) + "ForMaskedLM"}).dump()}};
}

}  // namespace tessera::models
