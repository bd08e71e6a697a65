#include "tessera/generation/model_source.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "tessera/config/hub_cache.h"
#include "tessera/core/error.h"
#include "tessera/generation/load_for_inference.h"
#include "tessera/io/file.h"
#include "tessera/io/gguf.h"
#include "tessera/io/json_reader.h"
#include "tessera/peft/adapter_files.h"

namespace tessera::generation {
namespace {

namespace fs = std::filesystem;

// Returns whether `path` is a folder; false if there is nothing.
bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// Returns whether a folder holds an adapter and no model. It may hold the base's config.json, which training
// programs put beside an adapter, but not its weights.
bool is_adapter(const std::string& folder) {
  if (!io::exists(io::join_path(folder, "adapter_config.json"))) return false;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("model") &&
        (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")))
      return false;
  }
  return true;
}

}  // namespace

std::string adapter_base(const std::string& adapter, const std::string& how_to_name) {
  const peft::AdapterConfig config = peft::read_adapter_config(adapter);
  const std::string& name = config.base_model;
  if (!name.empty() && is_folder(name)) return name;
  if (const fs::path beside = fs::path(adapter) / name; !name.empty() && is_folder(beside))
    return beside.string();
  if (const auto snapshot = config::find_in_hub_cache(config::HubKind::Model, name, config.revision))
    return *snapshot;
  Error error(
      ErrorKind::Model, "ADAPTER-BASE",
      name.empty() ? "the adapter does not name its base model" : "the adapter's base model is not here");
  error.in(config.source_file + ": base_model_name_or_path");
  if (!name.empty()) error.got("'" + name + "'");
  throw error.need("a model folder").hint(how_to_name);
}

ModelSource::ModelSource(std::string path, std::string adapter)
    : base_(std::move(path)), adapter_(std::move(adapter)) {
  if (adapter_.empty() && is_adapter(base_)) {
    adapter_ = base_;
    base_ = adapter_base(adapter_, "--model BASE --adapter " + adapter_);
  }
  const bool is_gguf = !is_folder(base_);
  if (const std::string config = io::join_path(base_, "config.json"); !is_gguf && !io::exists(config))
    throw io::missing_file(config);
  if (!adapter_.empty() && io::exists(io::join_path(adapter_, "tokenizer.json"))) {
    tokenizer_ = text::Tokenizer::from_folder(adapter_);
  } else {
    tokenizer_ =
        is_gguf ? text::Tokenizer::from_gguf(io::GgufFile::open(base_)) : text::Tokenizer::from_folder(base_);
  }
}

std::shared_ptr<models::CausalLM> ModelSource::load(const at::TensorOptions& options,
                                                    const parallel::DeviceMesh& mesh) const {
  return load_for_inference(base_, adapter_, options, mesh);
}

std::vector<int64_t> ModelSource::stop_ids(const models::CausalLM& model) const {
  std::vector<int64_t> ids = model.config().eos_token_ids;
  for (const int32_t id : tokenizer_->stop_ids()) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

}  // namespace tessera::generation
