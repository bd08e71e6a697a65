// A causal language model as the stages of a pipeline.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/models/common/causal_lm.h"
#include "tessera/nn/random_scope.h"
#include "tessera/parallel/pipeline/pipeline.h"

namespace tessera::models {

parallel::PipelineParts pipeline_parts(const CausalLM& model);

// parallel::plan_pipeline() by the products of every block and of the output projection for a token, of
// experts those that a token takes. `model` is whole, with its adapters.
parallel::PipelinePlan plan_pipeline(const CausalLM& model, int64_t num_ranks,
                                     const parallel::PipelineOptions& options);

// Has CausalLM::next_logits() run in the plan's stages, one for each rank of `group`, which call it together:
// a step goes through them one behind the other. Comes before the model's weights.
void decode_in_stages(CausalLM& model, const parallel::PipelinePlan& plan,
                      const std::shared_ptr<comm::Communicator>& group);

// Runs a model that was cut.
class Pipeline {
 public:
  // The model and what shards it outlive it. `ranks_per_batch`: ranks that hold a part of a batch's tokens
  // each where it goes from stage to stage (parallel::TensorParallelOptions::sequence_parallel).
  Pipeline(CausalLM& model, parallel::ShardedModel& sharded, parallel::Pipeline pipeline,
           int64_t ranks_per_batch = 1);

  struct Pass {
    const std::vector<nn::TokenBatch>& micro_batches;
    double scale = 1.0;  // of the loss, for the backward
    std::function<nn::RandomPlace(int64_t micro_batch)> random_place;
  };
  // parallel::Pipeline::run(): the sum of CausalLM::loss() over the micro-batches. Collective.
  at::Tensor run(const Pass& pass) const;

 private:
  CausalLM& model_;
  parallel::ShardedModel& sharded_;
  const parallel::Pipeline pipeline_;
  const int64_t ranks_per_batch_;
};

}  // namespace tessera::models
