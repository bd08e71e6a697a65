// The file manifest.json of a checkpoint's folder, which lists everything that the checkpoint consists of.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/parallel/layout.h"

namespace tessera::checkpoint {

inline constexpr int64_t kCheckpointVersion = 2;

// The box of a tensor that one rank has written; it stands in the rank's file under the tensor's name.
struct StoredTile {
  parallel::Box box;
  std::string file;  // name of the file in the folder
  std::string hash;  // TileHash of the tile's bytes
};

// One tensor of a checkpoint: its tiles are the boxes of its layout.
struct CheckpointTensor {
  std::string name;
  parallel::Layout layout;  // as the run that wrote it had cut the tensor
  std::vector<StoredTile> tiles;
};

struct Manifest {
  int64_t step = 0;
  std::string run;  // id of the run, which all its restarts keep
  // Values that the trainer writes and reads.
  nlohmann::ordered_json state = nlohmann::ordered_json::object();
  std::map<std::string, int64_t> files;          // bytes of each file of tiles, by name
  std::map<std::string, nlohmann::json> others;  // {"bytes", "hash"} of each other file, by name
  std::vector<CheckpointTensor> tensors;
};

// Returns the path of the manifest of a checkpoint's folder. A folder is a checkpoint's if it has one.
std::string manifest_path(const std::string& folder);
bool is_checkpoint(const std::string& folder);

// Returns the text of manifest.json, which ends with a checksum of itself.
std::string manifest_text(const Manifest& manifest);
// Reads and checks `folder`/manifest.json. The tiles of every tensor must be the boxes of its layout, each
// once, so that they make the tensor without a hole. Throws Error(Checkpoint): "NO-MANIFEST" if there is
// none, "VERSION" for another format version, "MANIFEST" for any other fault.
Manifest read_manifest(const std::string& folder);

// Convert one tensor with its tiles to its entry in manifest.json, and back. tensor_from_json() throws
// std::exception for an entry that is not sound.
nlohmann::ordered_json to_json(const CheckpointTensor& tensor);
CheckpointTensor tensor_from_json(const nlohmann::json& json);

}  // namespace tessera::checkpoint
