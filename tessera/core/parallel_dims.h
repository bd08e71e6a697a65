// How the ranks of a job are spread over the axes of a mesh.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tessera/core/error.h"

namespace tessera {

// How attention reaches the tokens of other ranks (parallel/context_parallel/).
enum class ContextParallelMethod {
  Auto,     // Ulysses where the key/value heads can be dealt evenly, else the ring
  Ring,     // keys and values go round; any number of heads
  Ulysses,  // heads change places with tokens; ranks beyond the key/value heads have no part in attention
  Usp,      // a grid of both: Ulysses among as many neighbours as share the heads evenly, rings across
};

// Sizes of the axes. dp_shard -1 = the ranks that the others leave.
struct ParallelDims {
  int64_t dp_replicate = 1;
  int64_t dp_shard = -1;
  int64_t cp = 1;
  int64_t tp = 1;
  int64_t pp = 1;
  // Ranks that share the experts of a layer, out of dp_shard x cp; this is no factor of the world.
  int64_t ep = 1;
  // Neighbours among the ranks of dp_shard x cp that keep a second copy of the parameters between forward and
  // backward, cut over them alone (ZeRO++'s hierarchical partition); 1 = none. This is no factor of the
  // world.
  int64_t hpz = 1;
  // Neighbours among the ranks of dp_shard x cp that run on one machine, for exchanges in two stages; 1 = in
  // one stage, 0 = as many as the names of the ranks' machines tell. This is no factor of the world.
  int64_t machine = 1;

  // Puts the place of a size into an error about it; `key` is its name in recipes, such as dp_shard_size.
  using Locate = std::function<void(Error& error, const std::string& key)>;

  // Gives these sizes with dp_shard resolved. Throws E-CONFIG-PARALLELISM, with the factors and the nearest
  // choice that works, if their product is not `world_size`, a size is below 1, or ep, hpz or machine does
  // not divide dp_shard x cp.
  ParallelDims resolved(int64_t world_size, const Locate& locate = {}) const;
};

}  // namespace tessera
