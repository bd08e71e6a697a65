// Saving and loading a sharded module as whole tensors.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/parallel/fully_shard.h"

namespace tessera::checkpoint {

// The tensors of a module by name, in order: parameters as in ShardedModel::parameters(), of which a shared
// one has its first name only, then buffers.
using StateDict = std::vector<std::pair<std::string, at::Tensor>>;

// Everything, in the types in which it is stored, on the first rank of all; empty on the others. No rank
// holds more than one whole parameter beside that. Throws Error(Config) on every rank where something has no
// values yet. Collective.
StateDict full_state_dict(const parallel::ShardedModel& model);

// Gives every rank its part of what the first rank brings; what the others bring is not looked at. Names must
// be those of full_state_dict(), and may be any of a shared parameter's; floating types are converted. Also
// for a module that was built on the meta device, buffers too. Throws Error(Checkpoint) on every rank, with
// everything that is wrong and before anything is changed, and an Error for tensors without values (hollow,
// undefined) or not dense on the CPU. Collective, one parameter at a time.
void load_full_state_dict(parallel::ShardedModel& model, const StateDict& state);

// full_state_dict() as one safetensors file, which the first rank writes: one parameter at a time, and the
// file appears, or replaces an older one, when it is complete. Throws Error(Storage) on every rank, and
// Error(Config) before the file is begun where something has no values yet or a buffer is of a type that no
// file stores. Collective.
void save_state_dict(const parallel::ShardedModel& model, const std::string& path);

// load_full_state_dict() from a safetensors file, or from a folder of Hugging Face's (model.safetensors, or
// shards with an index). Every rank reads what it holds and nothing else. Throws also what
// io::ModelFiles::open() throws. Where a file cannot be read to its end, on any rank, the module has no
// values until it is loaded again. Collective.
void load_state_dict(parallel::ShardedModel& model, const std::string& path);

}  // namespace tessera::checkpoint
