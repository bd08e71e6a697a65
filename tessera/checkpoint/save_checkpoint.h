// Writes the state of a run so that any other number of ranks can go on from it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/checkpoint/state_tensor.h"
#include "tessera/comm/communicator.h"

namespace tessera::checkpoint {

// The content of a checkpoint beside its tensors.
struct CheckpointNotes {
  int64_t step = 0;
  std::string run;  // id of the run, which all its restarts keep
  // Values that the trainer writes and reads.
  nlohmann::ordered_json state = nlohmann::ordered_json::object();
  // Name and bytes of small files ("metrics.jsonl", "events"). The first rank's are written.
  std::vector<std::pair<std::string, std::string>> files;
};

// Returns the bytes that the tensors take in a checkpoint, which holds every element once. The same on every
// rank.
int64_t checkpoint_bytes(const std::vector<StateTensor>& tensors);

// Tells whether this rank writes its box of tensor number `number` in save_checkpoint(). If several ranks
// hold the same box, one of them writes it; they take turns from tensor to tensor, so that all write about as
// much.
bool is_writer(const StateTensor& tensor, size_t number);

// Writes the folder `output_dir`/checkpoint-<step>. Each rank of `world` writes the tiles for which it
// is_writer(), as they are, into one safetensors file. No rank needs memory beside its tiles, except for a
// copy of one tile at a time if that is not contiguous or lies on another device than the CPU. A folder of
// the same step is replaced. `output_dir` must lie on a file system that all ranks share. The checkpoint
// appears when everything is on the disk; until then, and after an error on any rank, the older checkpoints
// are what there is. Throws Error(Storage) on every rank; "NO-SPACE" comes before anything is written.
// Collective.
void save_checkpoint(const std::vector<StateTensor>& tensors, const CheckpointNotes& notes,
                     const std::string& output_dir, comm::Communicator& world);

}  // namespace tessera::checkpoint
