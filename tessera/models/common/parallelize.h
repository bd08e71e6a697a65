// Where single-device models meet the mesh.
#pragma once

#include <functional>
#include <memory>

#include "tessera/models/common/causal_lm.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/parallel/fully_shard.h"

namespace tessera::models {

struct ParallelizeOptions {
  bool checkpoint_activations = false;  // recompute every block in the backward
  parallel::ShardOptions shard;
};

// Applies, in this order, activation checkpointing and full sharding to the model's blocks. `model` is on
// the meta device, adapters included; the tiles get memory in ShardedModel::materialize(). Collective.
std::unique_ptr<parallel::ShardedModel> parallelize(CausalLM& model, const parallel::DeviceMesh& mesh,
                                                    const ParallelizeOptions& options);

}  // namespace tessera::models
