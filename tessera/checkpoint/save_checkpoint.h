// Writing what a run carries so that any other number of ranks can go on from it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/checkpoint/state_tensor.h"
#include "tessera/comm/communicator.h"

namespace tessera::checkpoint {

// What a checkpoint holds beside its tensors.
struct CheckpointNotes {
  int64_t step = 0;
  std::string run;                                         // names the run, through all its restarts
  nlohmann::ordered_json state;                            // the trainer's own
  std::vector<std::pair<std::string, std::string>> files;  // "metrics.jsonl", "events": name and bytes
};

// Bytes that the tensors take in a checkpoint: every element once. The same on every rank.
int64_t checkpoint_bytes(const std::vector<StateTensor>& tensors);

// Whether this rank's save_checkpoint() writes its box of tensor number `number`. Of what several ranks hold
// alike they take turns, so that all write about as much.
bool is_writer(const StateTensor& tensor, size_t number);

// Writes `output_dir`/checkpoint-<step>: each rank of `world` its own tiles, as they are, into one
// safetensors file; of what several ranks hold alike, one of them. No rank needs memory beside them, but a
// copy of a tile that is not contiguous or on another device than the CPU. A folder of the same step is
// replaced. All ranks see the same files. Until everything is on the disk the older checkpoints are what
// there is, and after an error on any rank as well. Throws on every rank: Error(Storage), also "NO-SPACE"
// before anything is written. Collective.
void save_checkpoint(const std::vector<StateTensor>& tensors, const CheckpointNotes& notes,
                     const std::string& output_dir, comm::Communicator& world);

}  // namespace tessera::checkpoint
