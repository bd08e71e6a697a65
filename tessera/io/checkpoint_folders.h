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

// Checkpoints of `output_dir`, those of the latest step first. Links and files of such a name are none. None
// where there is no such folder. Throws Error(Storage).
std::vector<CheckpointFolder> list_checkpoints(const std::string& output_dir);

// A checkpoint under construction: the folder "checkpoint-<step>.tessera-partial" of `output_dir`, which
// becomes "checkpoint-<step>" as a whole.
class NewCheckpoint {
 public:
  // Makes it, empty, and `output_dir` where it is missing.
  NewCheckpoint(const std::string& output_dir, int64_t step);
  // Without commit() what is there is removed.
  ~NewCheckpoint();
  NewCheckpoint(const NewCheckpoint&) = delete;
  NewCheckpoint& operator=(const NewCheckpoint&) = delete;

  const std::string& staging() const { return staging_; }
  // Takes its place, after all that it holds is on the disk; one of the same step is replaced. Then "latest"
  // names it. After an exception of the last part the checkpoint may be in place.
  void commit();

 private:
  std::string output_dir_, name_, staging_;
  bool is_placed_ = false;
};

// Whether a folder of this name is what a killed run has left of a checkpoint.
bool is_partial_checkpoint(const std::string& name);

// Removes what killed runs have left of checkpoints in `output_dir`: only what checkpoints consist of. Throws
// Error(Storage).
void clear_partial_checkpoints(const std::string& output_dir);

// Removes a checkpoint, which is one no more from the first moment on. What no checkpoint consists of stays
// behind, in "<name>.tessera-old". Throws Error(Storage).
void remove_checkpoint(const std::string& output_dir, const std::string& name);

}  // namespace tessera::io
