// Reading a sharded checkpoint under any layout.
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

// Its tensors as stored ones: reading a box takes the parts of the tiles that lie in it, from the files that
// hold them, and nothing else. Safe to read from several threads.
class ShardedCheckpoint : public StoredTensors {
 public:
  // Reads the manifest and holds the sizes of all files against it. Throws Error(Checkpoint).
  static std::shared_ptr<const ShardedCheckpoint> open(const std::string& folder);
  ~ShardedCheckpoint() override;

  const Manifest& manifest() const;
  // Reads the share of a rank of `num_ranks` and holds it against the hashes of the manifest; all shares
  // together are the whole checkpoint. Throws Error(Checkpoint) "DAMAGED", naming file and tensor.
  void verify(int64_t rank, int64_t num_ranks) const;
  // One of manifest().others, held against its hash.
  std::string other_file(const std::string& name) const;

  void read(const std::string& name, const parallel::Box& box, const at::Tensor& destination) const override;

 private:
  struct State;
  explicit ShardedCheckpoint(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The parameters "<prefix><name>" of a checkpoint, by their names.
std::shared_ptr<const ParameterSource> checkpoint_source(
    const std::shared_ptr<const ShardedCheckpoint>& checkpoint, const std::string& prefix);

// Gives those of `tensors` their values whose names begin with `prefix`, each rank its box. Throws
// Error(Checkpoint) "TENSORS", before anything is read, where the checkpoint lacks one, has one more, or has
// one of another shape. Not collective.
void load_checkpoint(const ShardedCheckpoint& checkpoint, const std::vector<StateTensor>& tensors,
                     const std::string& prefix = "");

}  // namespace tessera::checkpoint
