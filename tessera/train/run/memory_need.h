// The memory that a run needs, the memory that there is for it, and the changes of a recipe that need less.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/config/recipe.h"
#include "tessera/train/run/estimate.h"

namespace tessera::train {

// The memory that a run needs.
struct MemoryNeed {
  RankMemory worst;           // the rank that needs most
  int64_t mean_bytes = 0;     // of a rank at its peak
  int64_t lasting_bytes = 0;  // of a rank, of weights and states, on average
};

// Estimates (estimate.h) one rank of each stage of the pipeline. Throws what estimate_memory() throws.
MemoryNeed memory_need(const config::Recipe& recipe, int64_t num_ranks);

// The memory in which the tensors of this machine's ranks lie.
struct MemoryRoom {
  int64_t bytes = 0;      // for tensors; 0 if it is not known
  int64_t num_ranks = 1;  // that share it
  std::string name;
  // The largest need that fits, as a multiple of `bytes`. Estimates are within 5 %, so that is left to a run
  // that might just fit, and kept free below a limit that the recipe sets.
  double slack = 1.05;

  // Returns what the machine has, or the GPU, or what host_memory_limit leaves of the former. The programs
  // without their tensors are taken off.
  static MemoryRoom of(const config::Recipe& recipe, comm::Communicator& world);
  bool fits(int64_t bytes_of_rank) const {
    return bytes == 0 || static_cast<double>(bytes_of_rank * num_ranks) <= slack * static_cast<double>(bytes);
  }
};

// A change of a recipe that saves memory.
struct MemoryChange {
  std::string text;
  std::function<bool(config::Recipe&)> make;  // returns whether it changes anything
  bool keeps_numbers = false;                 // says that a run with it computes the same losses
};

// Returns the changes, the smaller ones first: those that keep the numbers, then the others.
std::vector<MemoryChange> memory_changes(int64_t num_ranks);

// A recipe that fits, and the changes that made it fit: "bf16: true, optimizer: adamw_8bit".
struct FittingRecipe {
  config::Recipe recipe;
  std::string changes;
};

// Returns the recipe with the first of the changes with which it fits, or else with the first of them that
// make it fit together; nothing if none does. Of the memory at the peak, or with `is_lasting` of weights and
// states alone.
std::optional<FittingRecipe> make_fit(const config::Recipe& recipe, const std::vector<MemoryChange>& changes,
                                      const MemoryRoom& room, int64_t world_size, bool is_lasting);

}  // namespace tessera::train
