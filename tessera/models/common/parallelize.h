// Where single-device models meet the mesh.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "tessera/models/common/causal_lm.h"
#include "tessera/models/common/pipeline.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/parallel/fully_shard.h"
#include "tessera/parallel/tensor_parallel/tensor_parallel.h"

namespace tessera::models {

// Cuts the layers of `model`, on the meta device with its adapters, over the ranks of `axis`, and the output
// projection with the loss: parallel::tensor_parallel() by the family's plan. Collective along the axis.
parallel::ParameterLayouts cut_layers(CausalLM& model, const parallel::RankAxis& axis,
                                      const parallel::TensorParallelOptions& options = {});

struct ParallelizeOptions {
  // Of every n-th block keep the input alone and recompute the rest in the backward; 0: of none.
  int64_t checkpoint_every = 0;
  bool recompute_mlps = false;  // nn::Block::recompute_hidden() of every block
  // What blocks save of at least so many bytes lies on the host until their backward
  // (parallel::offload_activations()); 0: nothing.
  int64_t least_offloaded_bytes = 0;
  parallel::TensorParallelOptions tensor_parallel;
  ContextParallelMethod context_parallel = ContextParallelMethod::Auto;  // along the axis `cp`
  std::optional<parallel::PipelinePlan> pipeline;  // for as many ranks as the mesh's axis has
  parallel::ShardOptions shard;
};

struct ParallelModel {
  std::unique_ptr<parallel::ShardedModel> sharded;
  std::unique_ptr<Pipeline> pipeline;  // null where each rank runs the whole model
};

// Applies, in this order, tensor and context parallelism along the mesh's axes, the cut into stages, expert
// parallelism, recomputation and offloading of activations, and full sharding to the model's blocks. `model`
// is on the meta device, adapters included, and outlives the result; the tiles get memory in
// ShardedModel::materialize(). Collective.
ParallelModel parallelize(CausalLM& model, const parallel::DeviceMesh& mesh,
                          const ParallelizeOptions& options);

}  // namespace tessera::models
