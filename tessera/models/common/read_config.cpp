#include "tessera/models/common/read_config.h"

namespace tessera::models {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 44;  // largest number of elements of one weight

void refuse_unsupported(const io::JsonReader& reader) {
  if (reader.has("quantization_config")) {
    throw unsupported(reader, "quantization_config", "quantised weights are not supported")
        .hint("use the unquantised model");
  }
}

constexpr int64_t kMaxLabels = 1 << 20;

// A config without labels has two, and one label alone is a number, as in Transformers.
Classification read_classification(const io::JsonReader& reader) {
  Classification c;
  if (const auto names = reader.object("id2label")) {
    for (int64_t i = 0; names->has(std::to_string(i)); ++i)
      c.labels.push_back(names->text(std::to_string(i)));
    if (c.labels.empty()) throw reader.problem("id2label", "no label '0'").need("0, 1, ... in order");
  } else {
    c.labels = default_labels(reader.integer("num_labels", 1, kMaxLabels, 2));
  }
  const std::string name = reader.text("problem_type", "");
  const auto problem = find_problem_type(name);
  if (!name.empty() && !problem)
    throw reader.problem("problem_type", "unknown problem")
        .got(name)
        .need("single_label_classification, multi_label_classification or regression");
  c.problem = problem.value_or(c.num_labels() == 1 ? ProblemType::Regression : ProblemType::SingleLabel);
  return c;
}

Classification read_token_classification(const io::JsonReader& reader, ModelConfig& config) {
  Classification c = read_classification(reader);
  c.problem = ProblemType::Tokens;
  config.has_head_bias = reader.boolean("token_classification_bias", true);
  return c;
}

// An encoder may come with any head, in whose place another one can be trained.
void read_head(const io::JsonReader& reader, ModelConfig& config) {
  for (const std::string& architecture : reader.texts("architectures")) {
    if (config.is_encoder_decoder) {
      if (architecture.ends_with("ForConditionalGeneration")) continue;
      throw unsupported(reader, "architectures", "only the generation of targets is implemented")
          .got(architecture)
          .need("a *ForConditionalGeneration");
    }
    if (architecture.ends_with("ForSequenceClassification")) {
      config.classification = read_classification(reader);
      continue;
    }
    if (architecture.ends_with("ForTokenClassification")) {
      config.classification = read_token_classification(reader, config);
      continue;
    }
    if (config.is_encoder && architecture.ends_with("ForMaskedLM")) config.is_masked_lm = true;
    if (config.is_encoder || architecture.ends_with("ForCausalLM") || architecture.ends_with("Model"))
      continue;
    throw unsupported(reader, "architectures",
                      "neither a causal language model nor a classifier of texts or tokens")
        .got(architecture);
  }
}

void read_tokens(const io::JsonReader& reader, ModelConfig& config) {
  // Some configs give -1 for "none". Ids beyond the vocabulary are let through: the tokenizer may have added
  // tokens.
  const auto token = [&](const char* key) {
    auto id = reader.optional_integer(key, -1, kMaxSize);
    return id.has_value() && *id < 0 ? std::nullopt : id;
  };
  config.bos_token_id = token("bos_token_id");
  config.pad_token_id = token("pad_token_id");
  config.eos_token_ids = reader.integers("eos_token_id", -1, kMaxSize);
  std::erase_if(config.eos_token_ids, [](int64_t id) { return id < 0; });
}

}  // namespace

Error unsupported(const io::JsonReader& reader, const std::string& key, const std::string& what) {
  return Error(ErrorKind::Model, "UNSUPPORTED", what).in(reader.file() + ": key '" + key + "'");
}

void read_common(const io::JsonReader& reader, ModelConfig& config) {
  config.source_file = reader.file();
  config.model_type = reader.text("model_type");
  refuse_unsupported(reader);
  read_head(reader, config);
  // Transformers' classifiers of tokens fall back from one key to the other.
  const double fallback = read_dropout(reader, "hidden_dropout", config.classifier_dropout);
  config.classifier_dropout = read_dropout(reader, "classifier_dropout", fallback);
  read_tokens(reader, config);
  const std::string dtype = reader.text(reader.has("dtype") ? "dtype" : "torch_dtype", "");
  if (dtype == "float32") config.stored_dtype = DType::F32;
  if (dtype == "float64") config.stored_dtype = DType::F64;
  if (dtype == "bfloat16") config.stored_dtype = DType::BF16;
  if (dtype == "float16") config.stored_dtype = DType::F16;
}

double read_dropout(const io::JsonReader& reader, const std::string& key, double fallback) {
  return reader.number(key, 0.0, 0.999999, fallback);
}

void read_masked_tie(const io::JsonReader& reader, ModelConfig& config) {
  config.tie_word_embeddings = config.is_masked_lm && reader.boolean("tie_word_embeddings", true);
  config.has_head_bias = config.is_masked_lm;
}

void check_elements(const io::JsonReader& reader, const std::string& key, int64_t rows, int64_t columns) {
  if (rows <= kMaxElements / columns) return;
  throw reader.problem(key, "makes a weight of more than 2^44 elements")
      .got(std::to_string(rows) + " rows of " + std::to_string(columns));
}

void check_products(const io::JsonReader& reader, const ModelConfig& config,
                    const std::vector<std::pair<std::string, int64_t>>& keys) {
  for (const auto& [key, size] : keys) {
    if (size > kMaxElements / config.hidden_size) {
      throw reader.problem(key, "makes a weight of more than 2^44 elements with hidden_size")
          .got(std::to_string(size) + " rows of " + std::to_string(config.hidden_size));
    }
  }
}

}  // namespace tessera::models
