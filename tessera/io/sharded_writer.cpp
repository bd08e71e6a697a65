#include <cstdio>
#include <filesystem>
#include <set>

#include <nlohmann/json.hpp>

#include "tessera/io/model_files.h"

namespace tessera::io {
namespace {

namespace fs = std::filesystem;

std::string shard_name(const std::string& name, size_t shard, size_t num_shards) {
  char numbers[64];
  std::snprintf(numbers, sizeof numbers, "-%05zu-of-%05zu", shard + 1, num_shards);
  return name + numbers + ".safetensors";
}

// Returns whether `file` is named as a shard of an earlier save: "<name>-00001-of-00002.safetensors".
bool is_shard_name(const std::string& file, const std::string& name) {
  static const std::string kPattern = "-#####-of-#####.safetensors";
  if (file.size() != name.size() + kPattern.size() || !file.starts_with(name)) return false;
  for (size_t i = 0; i < kPattern.size(); ++i) {
    const char c = file[name.size() + i];
    if (kPattern[i] == '#' ? c < '0' || c > '9' : c != kPattern[i]) return false;
  }
  return true;
}

}  // namespace

struct ShardedSafetensorsWriter::State {
  std::string folder, name;
  std::vector<SafetensorsWriter> writers;
  std::vector<std::string> file_names;
  std::unordered_map<std::string, size_t> shard_of;
  int64_t total_bytes = 0;

  std::string path(const std::string& file) const { return join_path(folder, file); }
  std::string index_name() const { return name + ".safetensors.index.json"; }
  std::string index_text() const;
  void remove_leftovers() const;
};

std::string ShardedSafetensorsWriter::State::index_text() const {
  nlohmann::json index;
  index["metadata"]["total_size"] = total_bytes;
  for (const auto& [tensor, shard] : shard_of) index["weight_map"][tensor] = file_names[shard];
  return index.dump(2) + "\n";
}

void ShardedSafetensorsWriter::State::remove_leftovers() const {
  const std::set<std::string> current(file_names.begin(), file_names.end());
  std::vector<std::string> leftovers;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
    const std::string file = entry->path().filename();
    const bool is_ours = file == name + ".safetensors" || is_shard_name(file, name);
    if (is_ours && !current.contains(file)) leftovers.push_back(file);
  }
  for (const std::string& file : leftovers) remove_file(path(file));
  if (!leftovers.empty()) sync_directory(folder);
}

ShardedSafetensorsWriter::ShardedSafetensorsWriter(const std::string& folder,
                                                   const std::vector<TensorSpec>& tensors)
    : ShardedSafetensorsWriter(folder, tensors, Options()) {}

ShardedSafetensorsWriter::ShardedSafetensorsWriter(const std::string& folder,
                                                   const std::vector<TensorSpec>& tensors,
                                                   const Options& options)
    : state_(std::make_unique<State>()) {
  TESSERA_ASSERT(options.max_shard_bytes > 0, "max_shard_bytes must be positive");
  state_->folder = folder;
  state_->name = options.name;
  std::vector<std::vector<TensorSpec>> shards(1);
  int64_t shard_bytes = 0;
  for (const TensorSpec& tensor : tensors) {
    const int64_t num_bytes = tensor.num_bytes();
    if (!shards.back().empty() && num_bytes > options.max_shard_bytes - shard_bytes) {
      shards.emplace_back();
      shard_bytes = 0;
    }
    shards.back().push_back(tensor);
    if (!state_->shard_of.emplace(tensor.name, shards.size() - 1).second) {
      throw Error(ErrorKind::Model, "SAFETENSORS-WRITE", "the tensor was declared twice")
          .in(folder + ": tensor '" + tensor.name + "'");
    }
    if (__builtin_add_overflow(shard_bytes, num_bytes, &shard_bytes) ||
        __builtin_add_overflow(state_->total_bytes, num_bytes, &state_->total_bytes)) {
      throw Error(ErrorKind::Model, "TENSOR-SIZE", "the tensors' sizes overflow").in(folder);
    }
  }
  make_directories(folder);
  for (size_t i = 0; i < shards.size(); ++i) {
    state_->file_names.push_back(shards.size() == 1 ? options.name + ".safetensors"
                                                    : shard_name(options.name, i, shards.size()));
    state_->writers.emplace_back(state_->path(state_->file_names.back()), shards[i], options.metadata);
  }
}

ShardedSafetensorsWriter::~ShardedSafetensorsWriter() = default;
ShardedSafetensorsWriter::ShardedSafetensorsWriter(ShardedSafetensorsWriter&&) noexcept = default;
ShardedSafetensorsWriter& ShardedSafetensorsWriter::operator=(ShardedSafetensorsWriter&&) noexcept = default;

void ShardedSafetensorsWriter::write(std::string_view name, int64_t byte_offset, const void* data,
                                     int64_t num_bytes) {
  const auto found = state_->shard_of.find(std::string(name));
  TESSERA_ASSERT(found != state_->shard_of.end(),
                 "write of the undeclared tensor '" + std::string(name) + "'");
  state_->writers[found->second].write(name, byte_offset, data, num_bytes);
}

void ShardedSafetensorsWriter::commit() {
  for (const SafetensorsWriter& writer : state_->writers) writer.check_complete();
  const std::string index_path = state_->path(state_->index_name());
  if (state_->writers.size() == 1) {
    // Readers take the single file before an index, so the moment of its rename decides which model they see.
    state_->writers.front().commit();
    remove_file(index_path);
  } else {
    // New shards may take the place of old ones one by one, because nobody reads the mix: there is no index
    // until all are in place.
    remove_file(index_path);
    sync_directory(state_->folder);
    for (SafetensorsWriter& writer : state_->writers) writer.commit();
    write_file_atomic(index_path, state_->index_text());
  }
  state_->remove_leftovers();
}

const std::vector<std::string>& ShardedSafetensorsWriter::file_names() const { return state_->file_names; }

}  // namespace tessera::io
