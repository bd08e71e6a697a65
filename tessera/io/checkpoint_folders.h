// The checkpoints of a run as folders: "checkpoint-<step>" in its output folder, complete or absent.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::io {

struct CheckpointFolder {
  int64_t step = 0;
  std::string name;  // "checkpoint-6"
};

// Returns the checkpoints in `output_dir`, the latest step first. Links and files with such a name do not
// count. The list is empty if the folder does not exist. Throws Error(Storage).
std::vector<CheckpointFolder> list_checkpoints(const std::string& output_dir);

// A checkpoint under construction: the folder "checkpoint-<step>.tessera-partial" of `output_dir`, which
// becomes "checkpoint-<step>" as a whole.
class NewCheckpoint {
 public:
  // Makes the staging folder, empty, and `output_dir` if it is missing. Removes first what killed runs have
  // left of checkpoints there. Throws Error(Storage).
  NewCheckpoint(const std::string& output_dir, int64_t step);
  // Removes the staging folder, unless commit() has put it in place.
  ~NewCheckpoint();
  NewCheckpoint(const NewCheckpoint&) = delete;
  NewCheckpoint& operator=(const NewCheckpoint&) = delete;

  const std::string& staging() const { return staging_; }
  // Flushes the staging folder to the disk and then renames it to its final name; a checkpoint of the same
  // step is replaced. After that the file "latest" names it. Throws Error(Storage): if one of the last parts
  // failed, the checkpoint may be in place already.
  void commit();

 private:
  std::string output_dir_, name_, staging_;
  bool is_placed_ = false;
};

// Returns whether a folder of this name is what a killed run has left of a checkpoint.
bool is_partial_checkpoint(const std::string& name);

// Puts checkpoints back that a run was about to replace when it was killed, and says so: "<name>.tessera-old"
// becomes "<name>" where there is none. Throws Error(Storage).
void put_checkpoints_back(const std::string& output_dir);

// Calls put_checkpoints_back(), and removes what else killed runs have left of checkpoints in `output_dir`:
// of that only files that checkpoints consist of. Throws Error(Storage).
void clear_partial_checkpoints(const std::string& output_dir);

// Removes a checkpoint. It is renamed to "<name>.tessera-partial" first, and no checkpoint any more from then
// on.
// Files that no checkpoint consists of stay in the renamed folder. Throws Error(Storage).
void remove_checkpoint(const std::string& output_dir, const std::string& name);

}  // namespace tessera::io
