#include "tessera/checkpoint/sharded_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/checkpoint/tile_hash.h"
#include "tessera/core/content_hash.h"
#include "tessera/core/error.h"
#include "tessera/core/mismatch_list.h"
#include "tessera/device/device.h"
#include "tessera/io/file.h"
#include "tessera/io/safetensors.h"
#include "tessera/parallel/box_part.h"

namespace tessera::checkpoint {
namespace {

using parallel::Box;

std::vector<io::TensorSpec> specs_of(const Manifest& manifest) {
  std::vector<io::TensorSpec> specs;
  for (const CheckpointTensor& tensor : manifest.tensors)
    specs.push_back({tensor.name, tensor.layout.dtype(), tensor.layout.shape()});
  return specs;
}

Error damaged(const std::string& path, const std::string& what) {
  return Error(ErrorKind::Checkpoint, "DAMAGED", what).in(path);
}

void check_size(const std::string& path, int64_t wanted) {
  std::error_code failed;
  const auto size = std::filesystem::file_size(path, failed);
  if (failed) throw Error(ErrorKind::Checkpoint, "NO-FILE", "a file of the checkpoint is missing").in(path);
  if (static_cast<int64_t>(size) != wanted) {
    throw damaged(path, "a file of the checkpoint has another size")
        .got(std::to_string(size) + " bytes")
        .need(std::to_string(wanted));
  }
}

}  // namespace

struct ShardedCheckpoint::State {
  std::string folder;
  Manifest manifest;
  std::mutex mutex;  // guards `files`
  std::map<std::string, std::unique_ptr<const io::SafetensorsFile>> files;

  // Returns a file of the checkpoint, which is opened when it is first needed.
  const io::SafetensorsFile& file(const std::string& name) {
    const std::lock_guard lock(mutex);
    auto& file = files[name];
    const std::string path = io::join_path(folder, name);
    try {
      if (!file) file = std::make_unique<const io::SafetensorsFile>(io::SafetensorsFile::open(path));
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::Storage) throw;
      throw damaged(path, error.what());
    }
    return *file;
  }
  // Returns the file's tensor that is the tile, after checking it against the manifest.
  const io::TensorInfo& tile(const CheckpointTensor& tensor, const StoredTile& tile) {
    const io::TensorInfo* found = file(tile.file).find(tensor.name);
    if (found == nullptr || found->shape != tile.box.size || found->dtype != tensor.layout.dtype()) {
      throw damaged(io::join_path(folder, tile.file),
                    "the shard of '" + tensor.name + "' is not as the manifest says");
    }
    return *found;
  }
};

ShardedCheckpoint::ShardedCheckpoint(std::unique_ptr<State> state)
    : StoredTensors(state->folder, specs_of(state->manifest)), state_(std::move(state)) {}
ShardedCheckpoint::~ShardedCheckpoint() = default;

std::shared_ptr<const ShardedCheckpoint> ShardedCheckpoint::open(const std::string& folder) {
  auto state = std::make_unique<State>();
  state->folder = folder;
  state->manifest = read_manifest(folder);
  for (const auto& [name, bytes] : state->manifest.files) check_size(io::join_path(folder, name), bytes);
  for (const auto& [name, entry] : state->manifest.others)
    check_size(io::join_path(folder, name), entry.value("bytes", int64_t{-1}));
  return std::shared_ptr<const ShardedCheckpoint>(new ShardedCheckpoint(std::move(state)));
}

const Manifest& ShardedCheckpoint::manifest() const { return state_->manifest; }

// A thread reads the next piece into one half of the buffer while this thread hashes the other half. Before
// the next read begins, `next.get()` has waited for the one before, and hash.add() for its half has returned;
// so there is one read at a time, and nobody hashes the half that is written.
void ShardedCheckpoint::verify(int64_t rank, int64_t num_ranks) const {
  struct Piece {
    const CheckpointTensor* tensor;
    const StoredTile* tile;
    int64_t begin, size;
    bool is_last;  // whether it is the last piece of its tile
  };
  constexpr int64_t kHalfBytes = 8 * kTilePieceBytes;
  std::vector<Piece> pieces;
  int64_t number = 0;
  for (const CheckpointTensor& tensor : state_->manifest.tensors) {
    for (const StoredTile& tile : tensor.tiles) {
      if (number++ % num_ranks != rank) continue;
      const int64_t num_bytes = state_->tile(tensor, tile).num_bytes();
      for (int64_t begin = 0; begin < num_bytes; begin += kHalfBytes) {
        const int64_t size = std::min(kHalfBytes, num_bytes - begin);
        pieces.push_back({&tensor, &tile, begin, size, begin + size == num_bytes});
      }
    }
  }
  const at::Tensor buffer = at::empty({2 * kHalfBytes}, on_host(at::kByte));
  const auto half = [&](size_t i) {
    return static_cast<char*>(buffer.mutable_data_ptr()) + static_cast<int64_t>(i % 2) * kHalfBytes;
  };
  const auto read = [&](size_t i) {
    const Piece& piece = pieces[i];
    state_->file(piece.tile->file)
        .read(state_->tile(*piece.tensor, *piece.tile), piece.begin, piece.size, half(i));
  };
  TileHash hash;
  std::future<void> next;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i == 0) read(0);
    if (next.valid()) next.get();
    if (i + 1 < pieces.size()) next = std::async(std::launch::async, read, i + 1);
    hash.add(half(i), pieces[i].size);
    if (!pieces[i].is_last) continue;
    const std::string got = std::exchange(hash, {}).text();
    if (got == pieces[i].tile->hash) continue;
    throw damaged(io::join_path(place(), pieces[i].tile->file),
                  "the values of '" + pieces[i].tensor->name + "' are damaged")
        .got("hash " + got)
        .need(pieces[i].tile->hash);
  }
  if (rank != 0) return;
  for (const auto& [name, entry] : state_->manifest.others) (void)other_file(name);
}

std::string ShardedCheckpoint::other_file(const std::string& name) const {
  const auto entry = state_->manifest.others.find(name);
  const std::string path = io::join_path(place(), name);
  if (entry == state_->manifest.others.end())
    throw Error(ErrorKind::Checkpoint, "NO-FILE", "a file of the checkpoint is missing").in(path);
  std::string bytes = io::read_file(path, INT64_MAX);
  ContentHash hash;
  hash.add(bytes);
  if (hash.text() != entry->second.value("hash", "")) throw damaged(path, "the file is damaged");
  return bytes;
}

void ShardedCheckpoint::read(const std::string& name, const Box& box, const at::Tensor& destination) const {
  const io::TensorSpec* spec = find(name);
  TESSERA_ASSERT(spec != nullptr, "a tensor of the checkpoint");
  const CheckpointTensor& tensor = state_->manifest.tensors[static_cast<size_t>(spec - tensors().data())];
  for (const StoredTile& tile : tensor.tiles) {
    const Box common = intersect(box, tile.box);
    if (common.numel() == 0) continue;
    read_box(state_->file(tile.file), state_->tile(tensor, tile), relative_to(tile.box, common),
             parallel::box_part(destination, relative_to(box, common)));
  }
}

std::shared_ptr<const ParameterSource> checkpoint_source(
    const std::shared_ptr<const ShardedCheckpoint>& checkpoint, const std::string& prefix) {
  std::vector<StoredParameter> parameters;
  for (const io::TensorSpec& stored : checkpoint->tensors()) {
    if (!stored.name.starts_with(prefix)) continue;
    parameters.push_back(
        {stored.name.substr(prefix.size()), stored.shape, {stored_as_is(stored.name, stored.shape)}});
  }
  return stored_source(checkpoint, StateDictAdapter(std::move(parameters)));
}

void load_checkpoint(const ShardedCheckpoint& checkpoint, const std::vector<StateTensor>& tensors,
                     const std::string& prefix) {
  MismatchList wrong({"missing", "of another shape", "not used by this run"});
  std::set<std::string> names;
  for (const StateTensor& tensor : tensors) {
    names.insert(tensor.name);
    const io::TensorSpec* stored = checkpoint.find(tensor.name);
    if (stored == nullptr) {
      wrong.add("missing", tensor.name);
    } else if (stored->shape != tensor.layout.shape()) {
      wrong.add("of another shape", tensor.name);
    }
  }
  for (const io::TensorSpec& stored : checkpoint.tensors()) {
    if (!names.contains(stored.name)) wrong.add("not used by this run", stored.name);
  }
  if (!wrong.empty()) {
    throw Error(ErrorKind::Checkpoint, "TENSORS", "the checkpoint belongs to another model or optimizer")
        .in(checkpoint.place())
        .got(wrong.text());
  }
  for (const StateTensor& tensor : tensors) {
    if (!tensor.name.starts_with(prefix)) continue;
    const at::Tensor values = tensor.get();
    checkpoint.read(tensor.name, tensor.box(), values);
    tensor.set(values);
  }
}

}  // namespace tessera::checkpoint
