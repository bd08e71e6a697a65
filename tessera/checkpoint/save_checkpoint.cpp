#include "tessera/checkpoint/save_checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>

#include <ATen/ATen.h>

#include "tessera/checkpoint/manifest.h"
#include "tessera/checkpoint/tile_hash.h"
#include "tessera/comm/agreed_work.h"
#include "tessera/core/content_hash.h"
#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/device/device.h"
#include "tessera/io/checkpoint_folders.h"
#include "tessera/io/file.h"
#include "tessera/io/safetensors.h"

namespace tessera::checkpoint {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using parallel::AxisPlacement;
using parallel::Placement;

constexpr int64_t kSideBytes = int64_t{1} << 20;  // allowance for the manifest, headers and disk blocks

std::string file_of_rank(int64_t rank) {
  char name[48];
  std::snprintf(name, sizeof name, "rank-%05lld.safetensors", static_cast<long long>(rank));
  return name;
}

// Lists the tiles that one rank has written, each as a tensor with one tile, and the rank's file.
struct Written {
  std::vector<CheckpointTensor> tensors;
  std::string file;  // empty if the rank has written nothing
  int64_t num_bytes = 0;
};

Written write_tiles(const std::vector<StateTensor>& tensors, const std::string& folder, int64_t rank) {
  Written written;
  std::vector<const StateTensor*> own;
  std::vector<io::TensorSpec> specs;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!is_writer(tensors[i], i)) continue;
    own.push_back(&tensors[i]);
    specs.push_back({tensors[i].name, tensors[i].layout.dtype(), tensors[i].box().size});
  }
  if (own.empty()) return written;
  written.file = file_of_rank(rank);
  const std::string path = io::join_path(folder, written.file);
  io::SafetensorsWriter writer(path, specs);
  for (const StateTensor* tensor : own) {
    const at::Tensor values = tensor->get().to(kHost).contiguous();
    const auto num_bytes = static_cast<int64_t>(values.nbytes());
    // The hash is made of the bytes in memory, not of the file, so it also detects what goes wrong on the way
    // to the disk. A piece is hashed right after it is written, while it is still in the cache.
    TileHash hash;
    for (int64_t begin = 0; begin < num_bytes; begin += kTilePieceBytes) {
      const char* piece = static_cast<const char*>(values.const_data_ptr()) + begin;
      const int64_t size = std::min(kTilePieceBytes, num_bytes - begin);
      writer.write(tensor->name, begin, piece, size);
      hash.add(piece, size);
    }
    written.tensors.push_back({tensor->name, tensor->layout, {{tensor->box(), written.file, hash.text()}}});
  }
  writer.commit();
  std::error_code failed;
  written.num_bytes = static_cast<int64_t>(std::filesystem::file_size(path, failed));
  if (failed) throw io::storage_error(failed.value(), "cannot inspect", path);
  return written;
}

std::string to_text(const Written& written) {
  ordered_json tensors = ordered_json::array();
  for (const CheckpointTensor& tensor : written.tensors) tensors.push_back(to_json(tensor));
  return ordered_json({{"file", written.file}, {"bytes", written.num_bytes}, {"tensors", tensors}}).dump();
}

// Adds the tiles that all ranks have written to the manifest; texts[rank] is the rank's to_text(). If this
// rank does not see a file that another has written, or sees it in another size, output_dir lies on different
// disks, and this throws Error(Storage, "NOT-SHARED").
void merge(const std::vector<std::string>& texts, const std::string& folder, Manifest& manifest) {
  std::map<std::string, size_t> places;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const json written = json::parse(texts[rank]);
    const std::string file = written.at("file");
    if (file.empty()) continue;
    const int64_t num_bytes = written.at("bytes");
    std::error_code failed;
    const auto seen = std::filesystem::file_size(io::join_path(folder, file), failed);
    if (failed || static_cast<int64_t>(seen) != num_bytes) {
      throw Error(ErrorKind::Storage, "NOT-SHARED",
                  "the first rank does not see what rank " + std::to_string(rank) + " has written")
          .in(io::join_path(folder, file))
          .hint("output_dir must be on a file system that all machines share");
    }
    manifest.files[file] = num_bytes;
    for (const json& entry : written.at("tensors")) {
      CheckpointTensor tensor = tensor_from_json(entry);
      const auto [place, is_new] = places.try_emplace(tensor.name, manifest.tensors.size());
      if (is_new) {
        manifest.tensors.push_back(std::move(tensor));
      } else {
        manifest.tensors[place->second].tiles.push_back(std::move(tensor.tiles.front()));
      }
    }
  }
}

void require_space(const std::string& folder, int64_t num_bytes) {
  const int64_t needed = num_bytes + num_bytes / 100 + kSideBytes, free = io::free_space(folder);
  if (free >= needed) return;
  throw Error(ErrorKind::Storage, "NO-SPACE", "the checkpoint does not fit on the disk")
      .in(folder)
      .got(format_bytes(free) + " free")
      .need(format_bytes(needed))
      .hint("the older checkpoints are intact; free some space and resume from them");
}

}  // namespace

bool is_writer(const StateTensor& tensor, size_t number) {
  // Numbers the ranks that hold the same box: the coordinates on the axes that replicate it are the digits.
  int64_t copy = 0;
  for (size_t a = 0; a < tensor.coordinates.size(); ++a) {
    const AxisPlacement& axis = tensor.layout.axes()[a];
    if (axis.placement.kind == Placement::Kind::Replicate) copy = copy * axis.size + tensor.coordinates[a];
    if (axis.placement.kind == Placement::Kind::Held) {
      const auto& holders = axis.placement.holders;
      copy =
          copy * std::ssize(holders) + (std::ranges::find(holders, tensor.coordinates[a]) - holders.begin());
    }
  }
  // A tensor of one value (an optimizer's step count) is replicated also on ranks whose tile of the parameter
  // is empty. It is written by the first copy, whose rank has elements of the parameter.
  const auto turn = static_cast<int64_t>(number) % tensor.layout.num_replicas();
  return copy == (tensor.layout.numel() == 1 ? 0 : turn) && tensor.box().numel() > 0;
}

int64_t checkpoint_bytes(const std::vector<StateTensor>& tensors) {
  int64_t bytes = 0;
  for (const StateTensor& tensor : tensors)
    bytes += tensor.layout.numel() * dtype_size(tensor.layout.dtype());
  return bytes;
}

// [Note: phases of a save] A checkpoint is written in three phases, each of which ends with work.finish():
//
// 1. The first rank checks the space and makes the staging folder, whose name all ranks then learn.
// 2. Every rank writes its file of tiles into it and tells the others what it has written.
// 3. The first rank checks that it sees all files, writes the manifest, which lists them with their hashes,
//    and commits the folder: everything is flushed to the disk, and one rename gives the folder its name.
//
// Nobody reads a folder under its staging name, so a process that is killed in any phase leaves the older
// checkpoints as they are. finish() throws on all ranks if any of them has failed, so phase 3 never lists a
// file that is not whole. It also says that every rank has ended its phase: when an error makes the first
// rank remove the staging folder (the destructor of `folder`), no rank is still writing into it. Code
// between two finish() that may throw on one rank alone stands inside work.run(): elsewhere it would leave
// the other ranks in a collective.
void save_checkpoint(const std::vector<StateTensor>& tensors, const CheckpointNotes& notes,
                     const std::string& output_dir, comm::Communicator& world) {
  comm::AgreedWork work({&world}, "save the checkpoint");
  std::optional<io::NewCheckpoint> folder;
  std::string staging;
  work.run_on_first([&] {
    require_space(output_dir, checkpoint_bytes(tensors));
    folder.emplace(output_dir, notes.step);
    staging = folder->staging();
  });
  work.finish();
  staging = world.all_gather_string(staging).front();
  std::string own;
  work.run([&] { own = to_text(write_tiles(tensors, staging, world.rank())); });
  work.finish();
  const std::vector<std::string> texts = world.all_gather_string(own);
  work.run_on_first([&] {
    Manifest manifest;
    manifest.step = notes.step;
    manifest.run = notes.run;
    if (!notes.state.is_null()) manifest.state = notes.state;
    merge(texts, staging, manifest);
    for (const auto& [name, bytes] : notes.files) {
      io::write_file_atomic(io::join_path(staging, name), bytes);
      ContentHash hash;
      hash.add(bytes);
      manifest.others[name] = {{"bytes", bytes.size()}, {"hash", hash.text()}};
    }
    io::write_file_atomic(manifest_path(staging), manifest_text(manifest));
    folder->commit();
  });
  work.finish();
}

}  // namespace tessera::checkpoint
