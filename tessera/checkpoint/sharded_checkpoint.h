// Reads a sharded checkpoint under any layout.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/checkpoint/manifest.h"
#include "tessera/checkpoint/parameter_source.h"
#include "tessera/checkpoint/state_tensor.h"
#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/comm/communicator.h"

namespace tessera::checkpoint {

// The tensors of a checkpoint as stored tensors. Reading a box reads the parts of the tiles that lie in it,
// from the files that hold them, and nothing else. Safe to read from several threads.
class ShardedCheckpoint : public StoredTensors {
 public:
  // Reads the manifest and compares the sizes of all files with it. Throws Error(Checkpoint).
  static std::shared_ptr<const ShardedCheckpoint> open(const std::string& folder);
  ~ShardedCheckpoint() override;

  const Manifest& manifest() const;
  // Reads the share of rank `rank` of `num_ranks` and compares its hashes with those of the manifest; the
  // shares of all ranks together are the whole checkpoint. Throws Error(Checkpoint) "DAMAGED", naming file
  // and tensor. Not collective.
  void verify(int64_t rank, int64_t num_ranks) const;
  // Returns the bytes of one of manifest().others, after comparing their hash. Throws Error(Checkpoint).
  std::string other_file(const std::string& name) const;

  void read(const std::string& name, const parallel::Box& box, const at::Tensor& destination) const override;

 private:
  struct State;
  explicit ShardedCheckpoint(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Returns the checkpoint's tensors "<prefix><name>" as a source of the parameters <name>.
std::shared_ptr<const ParameterSource> checkpoint_source(
    const std::shared_ptr<const ShardedCheckpoint>& checkpoint, const std::string& prefix);

// Reads the values of those of `tensors` whose names begin with `prefix`: of each, the box that this rank
// owns. Throws Error(Checkpoint) "TENSORS", before anything is read, if the checkpoint lacks any of
// `tensors`, has a tensor that is not among them, or has one of another shape. Not collective.
void load_checkpoint(const ShardedCheckpoint& checkpoint, const std::vector<StateTensor>& tensors,
                     const std::string& prefix = "");

}  // namespace tessera::checkpoint
