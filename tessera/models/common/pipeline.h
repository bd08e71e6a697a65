// A causal language model as the stages of a pipeline.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tessera/core/pipeline_kind.h"
#include "tessera/models/common/causal_lm.h"
#include "tessera/nn/random_scope.h"
#include "tessera/parallel/fully_shard.h"
#include "tessera/parallel/parameter_layouts.h"

namespace tessera::models {

struct PipelineSizes {
  PipelineKind kind = PipelineKind::OneFOneB;
  int64_t num_ranks = 1;
  int64_t stages_per_rank = 1;
};

// Which blocks each stage holds. The first one embeds, the last one ends with the head.
struct PipelinePlan : PipelineSizes {
  std::vector<int64_t> bounds;             // stage s runs the blocks bounds[s] to bounds[s + 1]
  std::vector<bool> needs_input_gradient;  // of each stage: whether anything before it trains

  int64_t num_stages() const { return static_cast<int64_t>(bounds.size()) - 1; }
};

// Deals the blocks so that the stages have like work: the products of every block and of the output
// projection for a token, with the gradients of what trains. `model` is whole, with its adapters. Throws
// Error(Config, "PIPELINE") with the nearest number of ranks that works for more stages than blocks.
PipelinePlan plan_pipeline(const CausalLM& model, const PipelineSizes& sizes);

// parallel::hold_by_stage() by the plan. A tied embedding lies on the first and on the last rank.
parallel::ParameterLayouts hold_by_stage(CausalLM& model, const PipelinePlan& plan,
                                         const parallel::ParameterLayouts& layouts,
                                         const parallel::RankAxis& axis);

// Runs a model that was parallelised by `plan`. All ranks of `axis` give the same micro-batches.
class Pipeline {
 public:
  // The model and what shards it outlive it. `ranks_per_batch`: ranks that hold a part of a batch's tokens
  // each where it goes from stage to stage (parallel::TensorParallelOptions::sequence_parallel).
  Pipeline(CausalLM& model, parallel::ShardedModel& sharded, PipelinePlan plan, parallel::RankAxis axis,
           int64_t ranks_per_batch = 1);

  struct Pass {
    const std::vector<nn::TokenBatch>& micro_batches;
    double scale = 1.0;  // of the loss, for the backward
    std::function<nn::RandomPlace(int64_t micro_batch)> random_place;
  };
  // The sum of CausalLM::loss() over the micro-batches, a float64 tensor of one element on every rank. With
  // gradients enabled, tile.grad() of every trained parameter is complete afterwards. Collective.
  at::Tensor run(const Pass& pass) const;

 private:
  CausalLM& model_;
  parallel::ShardedModel& sharded_;
  const PipelinePlan plan_;
  const parallel::RankAxis axis_;
  const int64_t ranks_per_batch_;
};

}  // namespace tessera::models
