// Saves and loads a sharded module as whole tensors.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/parallel/fully_shard.h"

namespace tessera::checkpoint {

// The tensors of a module by name: first the parameters in the order of ShardedModel::parameters(), a shared
// one under its first name only, then the buffers.
using StateDict = std::vector<std::pair<std::string, at::Tensor>>;

// Returns all tensors of the module, in the types in which they are stored, on the first rank of all groups,
// and an empty dict on the others. No rank holds more than one whole parameter beside that. Throws
// Error(Config) on every rank if a parameter or buffer has no values yet. Collective.
StateDict full_state_dict(const parallel::ShardedModel& model);

// Loads the state that the first rank passes, of which every rank gets its part; `state` of other ranks is
// ignored. Names must be those of full_state_dict(), or any other name of a shared parameter; floating types
// are converted. The module may have been built on the meta device, buffers included. Before anything is
// changed, throws Error(Checkpoint) on every rank, which lists everything that does not fit, or names a
// tensor without values (hollow, undefined, on the meta device) or one that is not dense. Collective, one
// parameter at a time.
void load_full_state_dict(parallel::ShardedModel& model, const StateDict& state);

// Saves what full_state_dict() returns as one safetensors file. The first rank writes it, one parameter at a
// time; the file appears, or replaces an older one, when it is complete. Throws Error(Storage) on every rank,
// and, before the file is begun, Error(Config) if something has no values yet or a buffer is of a type that
// no file stores. Collective.
void save_state_dict(const parallel::ShardedModel& model, const std::string& path);

// Loads what load_full_state_dict() takes from a safetensors file, or from a Hugging Face folder
// (model.safetensors, or shards with an index). Every rank reads the parts that it holds and nothing else.
// Also throws what io::ModelFiles::open() throws. If a file cannot be read to its end on any rank, the module
// has no values until it is loaded again. Collective.
void load_state_dict(parallel::ShardedModel& model, const std::string& path);

}  // namespace tessera::checkpoint
