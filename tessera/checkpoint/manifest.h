// What a sharded checkpoint consists of: the file manifest.json of its folder.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/parallel/layout.h"

namespace tessera::checkpoint {

inline constexpr int64_t kCheckpointVersion = 2;

// The box of a tensor that one rank has written, under the tensor's name in its file.
struct StoredTile {
  parallel::Box box;
  std::string file;
  std::string hash;  // of its bytes
};

struct CheckpointTensor {
  std::string name;
  parallel::Layout layout;  // of the run that wrote it; the boxes of its tiles
  std::vector<StoredTile> tiles;
};

struct Manifest {
  int64_t step = 0;
  std::string run;                               // names the run, through all its restarts
  nlohmann::ordered_json state;                  // the trainer's own
  std::map<std::string, int64_t> files;          // bytes of each file of tiles
  std::map<std::string, nlohmann::json> others;  // {"bytes", "hash"} of each other file
  std::vector<CheckpointTensor> tensors;
};

// The text of manifest.json, with a checksum of its own.
std::string manifest_text(const Manifest& manifest);
// Of `folder`/manifest.json, checked: the tiles of every tensor are the boxes of its layout, each once, so
// that they make the tensor without a hole. Throws Error(Checkpoint): "NO-MANIFEST", "VERSION" for one that a
// later program has written, "MANIFEST" for any other fault.
Manifest read_manifest(const std::string& folder);

// What `tiles` are written as and read from.
nlohmann::ordered_json to_json(const CheckpointTensor& tensor);
CheckpointTensor tensor_from_json(const nlohmann::json& json);

}  // namespace tessera::checkpoint
