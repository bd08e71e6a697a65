// Tells how much memory a training takes, before it runs.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/config/recipe.h"
#include "tessera/core/memory_ledger.h"

namespace tessera::train {

// The memory of one rank.
struct RankMemory {
  int64_t rank = 0;
  memory_ledger::Peak peak;  // bytes by category when the sum was largest
  memory_ledger::Peak most;  // the largest of each category by itself
};

// Follows two steps of the recipe's training on the meta device, as rank `rank` of `num_ranks` would make
// them, and counts the memory of their tensors. It runs the code of the training itself (set-up, forward,
// backward, collectives, optimizer) on tensors without memory, so it knows of every layout and option that
// this knows of. Each micro-batch has micro_batch_size documents of sequence_len tokens, all of them with
// labels. Experts count with even numbers of tokens. Nothing of the base model but its headers is read.
// Throws what set_up_model() throws. Not thread-safe: it uses the memory ledger.
RankMemory estimate_memory(const config::Recipe& recipe, int64_t num_ranks, int64_t rank);

// Returns the ranks of a run whose memory can differ: the first of each stage of the pipeline.
std::vector<int64_t> ranks_to_estimate(const config::Recipe& recipe, int64_t num_ranks);

}  // namespace tessera::train
