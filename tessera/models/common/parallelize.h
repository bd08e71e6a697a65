// Where single-device models meet the mesh.
#pragma once

#include <functional>
#include <memory>

#include "tessera/models/common/causal_lm.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/parallel/fully_shard.h"

namespace tessera::models {

struct ParallelizeOptions {
  bool checkpoint_blocks = false;  // keep the input of every block and recompute the rest in the backward
  bool recompute_mlps = false;     // nn::Block::recompute_hidden() of every block
  bool sequence_parallel = false;  // parallel::TensorParallelOptions
  parallel::ShardOptions shard;
};

// Applies, in this order, tensor parallelism along the mesh's axis, recomputation of activations and full
// sharding to the model's blocks. `model` is on the meta device, adapters included; the tiles get memory in
// ShardedModel::materialize(). Collective.
std::unique_ptr<parallel::ShardedModel> parallelize(CausalLM& model, const parallel::DeviceMesh& mesh,
                                                    const ParallelizeOptions& options);

}  // namespace tessera::models
