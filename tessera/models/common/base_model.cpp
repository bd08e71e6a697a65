#include "tessera/models/common/base_model.h"

#include <filesystem>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/checkpoint/gguf_tensors.h"
#include "tessera/checkpoint/quantized_tensors.h"
#include "tessera/checkpoint/tied_weights.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/io/file.h"
#include "tessera/io/gguf.h"
#include "tessera/io/json_reader.h"
#include "tessera/io/model_files.h"
#include "tessera/models/common/classifier_config.h"
#include "tessera/models/common/load.h"
#include "tessera/models/registry.h"

namespace tessera::models {
namespace {

// Lists the stored tensors that have a row for each token.
std::vector<checkpoint::VocabularyTable> vocabulary_tables(const ModelConfig& config) {
  const std::shared_ptr<CausalLM> model = build_model(config, at::kFloat);
  const checkpoint::StateDictAdapter table = state_dict_adapter(*model);
  std::vector<checkpoint::VocabularyTable> tables;
  for (const std::string& name : token_tables(*model)) {
    for (const checkpoint::StoredPart& part : table.find(name)->parts) {
      tables.push_back({part.name, name});
      for (const std::string& alias : part.aliases) tables.push_back({alias, name});
    }
  }
  return tables;
}

}  // namespace

std::shared_ptr<const checkpoint::StoredTensors> folder_tensors(const std::string& path) {
  const auto make_table = [&]() -> checkpoint::StateDictAdapter {
    const std::string file = io::join_path(path, "config.json");
    const std::string text = io::exists(file) ? io::JsonReader::read_text(file) : "{}";
    if (find_family(io::JsonReader::parse(text, file).text("model_type", "")) == nullptr) return {};
    const auto config = parse_model_config(checkpoint::plain_config(text), file);
    return state_dict_adapter(*build_model(*config, at::kFloat));
  };
  return checkpoint::model_tensors(std::make_shared<const io::ModelFiles>(io::ModelFiles::open(path)),
                                   make_table);
}

// Whatever is a file is opened as GGUF, which says what is wrong with it. A path that leads nowhere is a
// folder, whose config.json is missed.
bool BaseModel::is_gguf(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) && !std::filesystem::is_directory(path, ignored);
}

BaseModel BaseModel::open(const std::string& path) {
  BaseModel model;
  model.path_ = path;
  if (is_gguf(path)) {
    model.gguf_ =
        std::make_shared<const checkpoint::GgufModel>(io::GgufFile::open(path), gguf_architectures());
    model.files_ = {model.gguf_->config(DType::F32), model.gguf_->generation_config()};
    model.config_ = parse_model_config(model.files_.config, path);
  } else {
    model.files_ = checkpoint::read_base_files(path);
    model.config_ = parse_model_config(model.files_.config, io::join_path(path, "config.json"));
    model.untie_what_differs();
    model.take_form_of_files();
  }
  return model;
}

void BaseModel::take_form_of_files() {
  if (gguf_) return;
  const auto files = tensors_or_none();
  if (files == nullptr) return;
  if (auto own = config_->in_form_of(*files)) config_ = std::move(own);
}

void BaseModel::untie_what_differs() {
  if (!config_->tie_word_embeddings) return;
  const std::shared_ptr<const checkpoint::StoredTensors> files = tensors_or_none();
  if (files == nullptr) return;
  const auto tie = find_different_tie(*build_model(*config_, at::kFloat), *files);
  if (!tie) return;
  log::warn(path_ + ": '" + tie->alias + "' differs from '" + tie->own +
            "', although config.json ties them: both are kept, as in Transformers, and the config.json of a "
            "result says so");
  files_.config = checkpoint::untied_config(files_.config);
  config_ = parse_model_config(files_.config, io::join_path(path_, "config.json"));
}

// Returns the folder's weights; null if it has none, or none that can be read. The reason shows in tensors(),
// where they are needed.
std::shared_ptr<const checkpoint::StoredTensors> BaseModel::tensors_or_none() const {
  try {
    return tensors();
  } catch (const Error&) {
    return nullptr;
  }
}

BaseModel BaseModel::with_vocabulary(const checkpoint::VocabularyRows& rows) const {
  if (rows.count == config_->vocab_size) return *this;
  if (config_->has_head_bias && !config_->classification) {
    throw Error(ErrorKind::Model, "UNSUPPORTED",
                "the vocabulary of a model whose output projection has a bias does not change its size")
        .in(config_->source_file)
        .got(std::to_string(rows.count) + " tokens")
        .need(std::to_string(config_->vocab_size));
  }
  if (config_->has_layer_inputs) {
    throw Error(ErrorKind::Model, "UNSUPPORTED",
                "the vocabulary of a model with an embedding for each layer does not change its size")
        .in(config_->source_file)
        .got(std::to_string(rows.count) + " tokens")
        .need(std::to_string(config_->vocab_size))
        .hint("use tokens that the vocabulary keeps free");
  }
  BaseModel model = with_config({{"vocab_size", std::to_string(rows.count)}});
  model.rows_ = rows;
  return model;
}

BaseModel BaseModel::as_classifier(const Classification& classification) const {
  const auto& own = config_->classification;
  if (own && own->problem == classification.problem && own->labels == classification.labels) return *this;
  if (gguf_) throw Error(ErrorKind::Model, "CLASSIFIER", "a GGUF file cannot become a classifier").in(path_);
  return with_config(classifier_config(*config_, files_.config, classification));
}

BaseModel BaseModel::as_masked_lm() const {
  return config_->is_masked_lm ? *this : with_config(masked_lm_config(*config_, files_.config));
}

BaseModel BaseModel::with_config(const std::map<std::string, std::string>& values) const {
  if (values.empty()) return *this;
  auto config = nlohmann::ordered_json::parse(files_.config);
  nlohmann::ordered_json& own = config_->is_text_part ? config["text_config"] : config;
  for (const auto& [key, text] : values) {
    const auto value = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (value.is_discarded())
      throw Error(ErrorKind::Model, "CONFIG", "not a JSON value").in("key '" + key + "'").got(text);
    if (key == "rope_scaling" && value.is_object() && own.contains("rope_parameters")) {
      own["rope_parameters"].update(value);
    } else {
      own[key] = value;
    }
  }
  BaseModel model = *this;
  model.files_.config = config.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  model.config_ = parse_model_config(model.files_.config, config_->source_file);
  model.take_form_of_files();
  return model;
}

BaseModel BaseModel::with_joined_experts() const {
  BaseModel model = *this;
  if (auto joined = config_->with_joined_experts()) model.config_ = std::move(joined);
  return model;
}

std::shared_ptr<const checkpoint::StoredTensors> BaseModel::tensors() const {
  if (!rows_) return stored();
  return checkpoint::with_vocabulary_rows(stored(), vocabulary_tables(*config_), *rows_,
                                          config_->initializer_range);
}

std::shared_ptr<const checkpoint::StoredTensors> BaseModel::stored() const {
  if (gguf_) return checkpoint::stored_tensors(gguf_);
  if (config_->is_text_part) return whole()->text_part();
  return folder_tensors(path_);
}

std::shared_ptr<const checkpoint::WholeModel> BaseModel::whole() const {
  if (!config_->is_text_part) return nullptr;
  return std::make_shared<const checkpoint::WholeModel>(folder_tensors(path_));
}

bool BaseModel::has_tokenizer(const std::string& path) {
  return is_gguf(path) || text::Tokenizer::is_in_folder(path);
}

text::Tokenizer BaseModel::tokenizer(const std::string& path) {
  return is_gguf(path) ? text::Tokenizer::from_gguf(io::GgufFile::open(path))
                       : text::Tokenizer::from_folder(path);
}

}  // namespace tessera::models
