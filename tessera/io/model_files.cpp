#include "tessera/io/model_files.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <nlohmann/json.hpp>

#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/io/json_file.h"

namespace tessera::io {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxListed = 20;  // names in one message
constexpr std::string_view kIndexSuffix = ".index.json";

bool is_pickle_name(std::string_view name) {
  return name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth") ||
         name.ends_with(".ckpt") || name.ends_with(".pkl") || name.ends_with(".bin.index.json");
}

Error pickle_error(const std::string& path) {
  Error error(ErrorKind::Model, "PICKLE", "pickle is not supported, convert to safetensors");
  error.in(path).hint(
      "a pickle can run any program when it is loaded; save_pretrained(..., safe_serialization=True) of "
      "Transformers writes safetensors");
  return error;
}

Error index_error(const std::string& path, const std::string& key, std::string what) {
  Error error(ErrorKind::Model, "INDEX", std::move(what));
  error.in(key.empty() ? path : path + ": '" + key.substr(0, 200) + "'");
  return error;
}

// Joins names to a text such as "a, b, c and 7 more".
std::string capped_list(const std::vector<std::string>& names) {
  const auto count = static_cast<int64_t>(names.size());
  if (count <= kMaxListed) return join(names, ", ");
  return join({names.begin(), names.begin() + kMaxListed}, ", ") + " and " +
         std::to_string(count - kMaxListed) + " more";
}

// Returns whether `path` lies directly or deeper in `folder`. Links in both are resolved.
bool lies_in(const std::string& path, const std::string& folder) {
  std::error_code failed;
  const fs::path file = fs::canonical(path, failed);
  if (failed) return false;
  const fs::path root = fs::canonical(folder, failed);
  if (failed) return false;
  const auto [end, unused] = std::mismatch(root.begin(), root.end(), file.begin(), file.end());
  return end == root.end();
}

// Refuses a shard's name that leads out of the folder, since it comes from the contents of a file. In a cache
// of the Hugging Face hub every file is a link into one folder of blobs, the index too, so links into the
// folder where the index really lies are fine.
void check_shard_name(const std::string& folder, const std::string& index_path, const std::string& tensor,
                      const std::string& shard) {
  const fs::path name(shard);
  const bool parts_are_plain =
      std::none_of(name.begin(), name.end(), [](const fs::path& part) { return part == ".."; });
  if (shard.empty() || shard.find('\0') != std::string::npos || name.is_absolute() || !parts_are_plain) {
    throw index_error(index_path, tensor, "the shard's name leads out of the model folder")
        .got("'" + shard + "'");
  }
  if (is_pickle_name(shard)) throw pickle_error(join_path(folder, shard));
  const std::string path = join_path(folder, shard);
  if (!exists(path)) {
    throw index_error(index_path, tensor, "the index names a shard that does not exist")
        .got("'" + shard + "'");
  }
  std::error_code failed;
  const fs::path real_index = fs::canonical(index_path, failed);
  if (!lies_in(path, folder) && (failed || !lies_in(path, real_index.parent_path()))) {
    throw index_error(index_path, tensor, "the shard is a link that leads out of the model folder")
        .got("'" + shard + "'");
  }
}

// Returns whether this is a pickle that Transformers' Trainer leaves beside the weights, and that says
// nothing about their format.
bool is_training_state(std::string_view name) {
  return name.starts_with("training_args") || name.starts_with("optimizer") ||
         name.starts_with("scheduler") || name.starts_with("rng_state") || name.starts_with("scaler");
}

Error no_weights_error(const std::string& folder) {
  std::set<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
    names.insert(entry->path().filename());
  }
  std::string hint;
  for (const std::string& name : names) {
    if (is_pickle_name(name) && !is_training_state(name)) return pickle_error(join_path(folder, name));
    if (name.ends_with(".gguf")) hint = "it contains " + name + ": convert it with 'tessera convert'";
  }
  if (names.contains("adapter_model.safetensors")) {
    hint =
        "it contains adapter_model.safetensors: an adapter needs its base model, merge it with 'tessera "
        "merge'";
  }
  Error error(ErrorKind::Model, "NO-WEIGHTS",
              "the folder contains neither model.safetensors nor model.safetensors.index.json");
  error.in(folder);
  if (!hint.empty()) error.hint(hint);
  return error;
}

}  // namespace

ModelFiles ModelFiles::open(const std::string& folder) {
  std::error_code failed;
  if (!fs::is_directory(folder, failed)) {
    if (is_pickle_name(folder) && exists(folder)) throw pickle_error(folder);
    throw Error(ErrorKind::Model, "NO-FOLDER",
                exists(folder) ? "the model must be a folder" : "no such model folder")
        .in(folder);
  }
  if (exists(join_path(folder, "model.safetensors"))) return open(folder, "model.safetensors");
  if (exists(join_path(folder, "model.safetensors.index.json")))
    return open(folder, "model.safetensors.index.json");
  throw no_weights_error(folder);
}

ModelFiles ModelFiles::open(const std::string& folder, const std::string& file_name) {
  ModelFiles files;
  files.folder_ = folder;
  const std::string path = join_path(folder, file_name);
  if (is_pickle_name(file_name)) throw pickle_error(path);
  if (!exists(path)) throw Error(ErrorKind::Model, "NO-FILE", "no such file").in(path);
  if (file_name.ends_with(kIndexSuffix)) {
    files.open_index(path);
  } else {
    files.add_file(path);
  }
  return files;
}

void ModelFiles::add_file(const std::string& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(SafetensorsFile::open(path)));
  const SafetensorsFile& file = *files_.back();
  for (const TensorInfo& tensor : file.tensors()) {
    const auto [found, is_new] = index_.emplace(tensor.name, Location{&file, &tensor});
    if (!is_new) {
      throw Error(ErrorKind::Model, "TENSOR-TWICE", "the tensor is in two shards")
          .in(path + ": tensor '" + tensor.name + "'")
          .got("also in " + found->second.file->path());
    }
    tensors_.push_back(&tensor);
    if (__builtin_add_overflow(total_bytes_, tensor.num_bytes(), &total_bytes_)) {
      throw Error(ErrorKind::Model, "TENSOR-SIZE", "the tensors' sizes overflow").in(path);
    }
  }
}

void ModelFiles::open_index(const std::string& index_path) {
  const nlohmann::json index = read_json_file(index_path, ErrorKind::Model, {.max_depth = 16});
  if (!index.is_object()) throw index_error(index_path, "", "the index must be a JSON object");
  const auto weight_map = index.find("weight_map");
  if (weight_map == index.end() || !weight_map->is_object()) {
    throw index_error(index_path, "weight_map", "the index needs an object that maps tensors to shards");
  }
  if (weight_map->empty()) throw index_error(index_path, "weight_map", "the index lists no tensor");

  std::map<std::string, std::vector<std::string>> tensors_of_shard;
  for (const auto& [tensor, shard] : weight_map->items()) {
    if (!shard.is_string())
      throw index_error(index_path, tensor, "the shard's name must be a string").got(shard.type_name());
    tensors_of_shard[shard.get<std::string>()].push_back(tensor);
  }
  for (const auto& [shard, tensors] : tensors_of_shard)
    check_shard_name(folder_, index_path, tensors.front(), shard);
  for (const auto& [shard, tensors] : tensors_of_shard) {
    const std::string path = join_path(folder_, shard);
    add_file(path);
    std::vector<std::string> missing;
    for (const std::string& tensor : tensors) {
      if (files_.back()->find(tensor) == nullptr) missing.push_back(tensor);
    }
    if (!missing.empty()) {
      throw Error(ErrorKind::Model, "TENSOR-MISSING", "the shard lacks tensors that the index lists in it")
          .in(path)
          .got(std::to_string(missing.size()) + " missing: " + capped_list(missing));
    }
  }
  std::vector<std::string> unlisted;
  for (const TensorInfo* tensor : tensors_) {
    if (!weight_map->contains(tensor->name)) unlisted.push_back(tensor->name);
  }
  if (!unlisted.empty()) {
    throw Error(ErrorKind::Model, "TENSOR-UNLISTED",
                "the shards contain tensors that the index does not list")
        .in(index_path)
        .got(std::to_string(unlisted.size()) + " unlisted: " + capped_list(unlisted));
  }

  const auto metadata = index.find("metadata");
  if (metadata == index.end() || !metadata->is_object() || !metadata->contains("total_size")) return;
  const nlohmann::json& total = metadata->at("total_size");
  if (total != total_bytes_) {
    log::warn(index_path + ": total_size is " + total.dump().substr(0, 40) + ", the shards hold " +
              std::to_string(total_bytes_) + " bytes");
  }
}

ModelFiles::Location ModelFiles::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? Location{} : found->second;
}

ModelFiles::Location ModelFiles::require(std::string_view name) const {
  const Location location = find(name);
  if (location) return location;
  std::vector<std::string> names;
  for (const TensorInfo* tensor : tensors_) names.push_back(tensor->name);
  Error error(ErrorKind::Model, "TENSOR-MISSING",
              "the model files lack the tensor '" + std::string(name) + "'");
  error.in(files_.size() == 1 ? files_.front()->path() : folder_);
  if (const std::string near = nearest_name(name, names); !near.empty())
    error.hint("there is '" + near + "'");
  throw error;
}

const std::map<std::string, std::string>& ModelFiles::metadata() const { return files_.front()->metadata(); }

void ModelFiles::read(std::string_view name, int64_t byte_offset, int64_t num_bytes,
                      void* destination) const {
  const Location location = require(name);
  location.file->read(*location.tensor, byte_offset, num_bytes, destination);
}

}  // namespace tessera::io
