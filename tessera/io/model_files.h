// The weights of a Hugging Face model folder: one safetensors file, or shards with an index.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/io/safetensors.h"

namespace tessera::io {

// All tensors of a model's folder, whichever files hold them. Safe to read from several threads.
class ModelFiles {
 public:
  struct Location {
    const SafetensorsFile* file = nullptr;  // null: no such tensor
    const TensorInfo* tensor = nullptr;
    explicit operator bool() const { return file != nullptr; }
  };

  // Opens `folder`/model.safetensors or, if that is missing, the shards of
  // `folder`/model.safetensors.index.json. Throws Model for an absent or malformed file, a shard name that
  // leaves the folder (absolute, "..", a link that points elsewhere; links inside a Hugging Face hub cache
  // are fine), a tensor in two shards, a listed tensor that its shard lacks, a tensor that the index does not
  // list, and for folders that hold only pickle files. A wrong total_size is a warning.
  static ModelFiles open(const std::string& folder);
  // Opens one file of the folder by name, e.g. "adapter_model.safetensors", or the shards of an index,
  // "x.index.json".
  static ModelFiles open(const std::string& folder, const std::string& file_name);

  // Returns where the tensor is; the result is false when there is no such tensor.
  Location find(std::string_view name) const;
  // Returns where the tensor is. Throws Model with the nearest known name when the tensor is missing.
  Location require(std::string_view name) const;
  // All tensors, ordered by file and then by offset.
  const std::vector<const TensorInfo*>& tensors() const { return tensors_; }
  // Sum of the tensors' bytes.
  int64_t total_bytes() const { return total_bytes_; }
  // The __metadata__ of the first file.
  const std::map<std::string, std::string>& metadata() const;
  const std::string& folder() const { return folder_; }

  // Reads as SafetensorsFile::read() does, from the file that holds the tensor. Throws Model when the tensor
  // is missing.
  void read(std::string_view name, int64_t byte_offset, int64_t num_bytes, void* destination) const;

 private:
  void add_file(const std::string& path);
  void open_index(const std::string& index_path);

  std::string folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::unordered_map<std::string_view, Location> index_;
  std::vector<const TensorInfo*> tensors_;
  int64_t total_bytes_ = 0;
};

// Writes what ModelFiles::open() reads: `name`.safetensors when everything fits into `max_shard_bytes`, else
// `name`-00001-of-0000N.safetensors and `name`.safetensors.index.json. A tensor is never split.
class ShardedSafetensorsWriter {
 public:
  struct Options {
    int64_t max_shard_bytes = 5'000'000'000;
    std::map<std::string, std::string> metadata = {{"format", "pt"}};
    std::string name = "model";
  };

  // Declares all tensors, which fill the shards in the order given. `folder` is made when it does not exist.
  // Throws what SafetensorsWriter throws.
  ShardedSafetensorsWriter(const std::string& folder, const std::vector<TensorSpec>& tensors,
                           const Options& options);
  ShardedSafetensorsWriter(const std::string& folder, const std::vector<TensorSpec>& tensors);
  ~ShardedSafetensorsWriter();
  ShardedSafetensorsWriter(ShardedSafetensorsWriter&&) noexcept;
  ShardedSafetensorsWriter& operator=(ShardedSafetensorsWriter&&) noexcept;

  // Writes as SafetensorsWriter::write() does, to the file that holds the tensor.
  void write(std::string_view name, int64_t byte_offset, const void* data, int64_t num_bytes);
  // Puts all files in place, then removes those of an earlier save under the same `name` that no longer
  // belong to it. A crash leaves the old model, the new one, or a folder that open() refuses: never a mix.
  void commit();
  // File names in shard order, without the index.
  const std::vector<std::string>& file_names() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::io
