#include "tessera/models/common/base_model.h"

#include <filesystem>
#include <utility>

#include "tessera/checkpoint/gguf_tensors.h"
#include "tessera/checkpoint/quantized_tensors.h"
#include "tessera/checkpoint/tied_weights.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/io/file.h"
#include "tessera/io/gguf.h"
#include "tessera/io/model_files.h"
#include "tessera/models/common/load.h"
#include "tessera/models/registry.h"

namespace tessera::models {
namespace {

std::shared_ptr<const checkpoint::StoredTensors> folder_tensors(const std::string& path) {
  return checkpoint::model_tensors(std::make_shared<const io::ModelFiles>(io::ModelFiles::open(path)));
}

}  // namespace

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
  }
  return model;
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

std::shared_ptr<const checkpoint::StoredTensors> BaseModel::tensors() const {
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
