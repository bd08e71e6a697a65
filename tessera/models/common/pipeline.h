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

// Returns the model's parameters and blocks in the order in which a micro-batch goes through them: embedding
// tables, blocks, final norm and output projection.
parallel::PipelineParts pipeline_parts(const CausalLM& model);

// Calls parallel::plan_pipeline() with the cost of every block and of the output projection: the matrix
// products for one token, counting only as many experts as a token takes. `model` is whole and has its
// adapters.
parallel::PipelinePlan plan_pipeline(const CausalLM& model, int64_t num_ranks,
                                     const parallel::PipelineOptions& options);

// Makes CausalLM::next_logits() run in the plan's stages, equally many on each rank of `group`: it becomes
// collective over the group, and a step goes through the stages one after the other.
void decode_in_stages(CausalLM& model, const parallel::PipelinePlan& plan,
                      const std::shared_ptr<comm::Communicator>& group);

// A model that was cut into stages, and runs in them.
class StagedModel {
 public:
  // `model` and `sharded` must outlive this object. `ranks_per_batch` is the number of ranks among which the
  // tokens of a micro-batch are cut while it goes from stage to stage
  // (parallel::TensorParallelOptions::sequence_parallel).
  StagedModel(CausalLM& model, parallel::ShardedModel& sharded, parallel::Pipeline pipeline,
              int64_t ranks_per_batch = 1);

  struct Pass {
    const std::vector<nn::TokenBatch>& micro_batches;
    double scale = 1.0;  // factor of the loss in the backward
    // Returns the place at which a micro-batch draws its random numbers (nn::RandomScope).
    std::function<nn::RandomPlace(int64_t micro_batch)> random_place;
  };
  // Runs the micro-batches through the stages (parallel::Pipeline::run()) and returns the sum of
  // CausalLM::loss() over them, a float64 tensor of one element. Collective.
  at::Tensor run(const Pass& pass) const;

 private:
  CausalLM& model_;
  parallel::ShardedModel& sharded_;
  const parallel::Pipeline pipeline_;
  const int64_t ranks_per_batch_;
};

}  // namespace tessera::models
