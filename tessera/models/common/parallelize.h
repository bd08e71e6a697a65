// Applies all kinds of parallelism to a single-device model.
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

// Cuts the layers of `model`, and the output projection with the loss, over the ranks of `axis`: calls
// parallel::tensor_parallel() with the family's plan. The model is on the meta device and has its adapters.
// Returns the layouts of the parameters. Collective along the axis.
parallel::ParameterLayouts cut_layers(CausalLM& model, const parallel::RankAxis& axis,
                                      const parallel::TensorParallelOptions& options = {});

struct ParallelizeOptions {
  // Every block whose number (from 1) is a multiple of this keeps its input alone and recomputes the rest in
  // the backward (activation checkpointing); 0 = no block does.
  int64_t checkpoint_every = 0;
  bool recompute_mlps = false;  // calls nn::TransformerBlock::recompute_hidden() of every block
  // Saved activations of at least this many bytes lie on the host until their block's backward
  // (parallel::offload_activations()); 0 = none do.
  int64_t least_offloaded_bytes = 0;
  parallel::TensorParallelOptions tensor_parallel;
  ContextParallelMethod context_parallel = ContextParallelMethod::Auto;  // along the axis `cp`
  std::optional<parallel::PipelinePlan> pipeline;  // made for as many ranks as the axis `pp` has
  parallel::ShardOptions shard;
};

struct ParallelModel {
  std::unique_ptr<parallel::ShardedModel> sharded;
  std::unique_ptr<StagedModel> pipeline;  // null where each rank runs the whole model
};

// Refuses, with Error(Config), to cut the tokens of an encoder-decoder between so many ranks, unless it is
// one.
void check_context_parallel(const CausalLM& model, int64_t ranks);

// Applies to the model's blocks, in this order, tensor and context parallelism along the mesh's axes, the cut
// into stages, expert parallelism, recompute and offloading of activations, and full sharding. `model` is on
// the meta device, adapters included, and must outlive the result; the tiles get memory in
// ShardedModel::materialize(). Collective.
ParallelModel parallelize(CausalLM& model, const parallel::DeviceMesh& mesh,
                          const ParallelizeOptions& options);

}  // namespace tessera::models
