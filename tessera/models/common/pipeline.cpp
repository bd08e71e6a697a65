#include "tessera/models/common/pipeline.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/nn/transformer_block.h"

namespace tessera::models {
namespace {

// Returns the cost of the products of those experts of a block that a token does not take.
double idle_work_of(const nn::TransformerBlock& block, const ModelConfig& config) {
  if (block.sparse_mlp == nullptr) return 0.0;
  const nn::Experts& all = block.sparse_mlp->experts;
  double work = 0.0;
  for (const double expert : parallel::product_costs({{}, {all.begin(), all.end()}, {}}).blocks)
    work += expert;
  const auto experts = static_cast<double>(std::max<int64_t>(1, config.num_experts));
  return work * (1.0 - static_cast<double>(config.experts_per_token) / experts);
}

}  // namespace

parallel::PipelineParts pipeline_parts(const CausalLM& model) {
  const auto& blocks = model.blocks();
  parallel::PipelineParts parts{{}, {blocks.begin(), blocks.end()}, model.head().used_parameters()};
  for (const auto& embedding : model.embeddings()) {
    parts.first.push_back(embedding->weight);
    if (embedding->token_rows() != nullptr) parts.first.push_back(embedding->token_rows()->rows);
    if (embedding->virtual_rows() != nullptr) parts.first.push_back(embedding->virtual_rows()->weight);
  }
  return parts;
}

parallel::PipelinePlan plan_pipeline(const CausalLM& model, int64_t num_ranks,
                                     const parallel::PipelineOptions& options) {
  if (model.config().is_encoder_decoder) {
    throw Error(
        ErrorKind::Config, "PIPELINE",
        "a pipeline is not supported for an encoder-decoder: the blocks of a stack share one table of "
        "position biases, which every stage would have to hold")
        .hint("leave out pipeline_parallel_size; dp_shard_size cuts the model's weights, too");
  }
  if (model.config().reads_far()) {
    throw Error(ErrorKind::Config, "PIPELINE",
                std::string("a pipeline is not supported for this model: its layers read ") +
                    (model.config().shares_keys ? "the keys and values of earlier layers"
                                                : "an embedding of the tokens for each layer") +
                    ", which no stage hands on")
        .in(model.config().source_file)
        .hint("leave out pipeline_parallel_size; dp_shard_size cuts the model's weights, too");
  }
  const parallel::PipelineParts parts = pipeline_parts(model);
  parallel::PartCosts costs = parallel::product_costs(parts);
  for (size_t i = 0; i < costs.blocks.size(); ++i)
    costs.blocks[i] -= idle_work_of(*model.blocks()[i], model.config());
  // An embedding copies one row for each token, which is counted as hidden_size multiplications.
  costs.first = static_cast<double>(model.config().hidden_size);
  return parallel::plan_pipeline(model, parts, costs, num_ranks, options);
}

void decode_in_stages(CausalLM& model, const parallel::PipelinePlan& plan,
                      const std::shared_ptr<comm::Communicator>& group) {
  const int64_t num_ranks = group->size(), last = plan.num_stages() - 1;
  TESSERA_ASSERT(plan.num_stages() % num_ranks == 0, "as many stages on each rank");
  DecodeStages stages;
  for (int64_t stage = group->rank(); stage <= last; stage += num_ranks)
    stages.own.push_back({plan.bounds[stage], plan.bounds[stage + 1]});
  stages.between = [&model, group, num_ranks, last](const DecodeStages::Run& run, int64_t tokens,
                                                    int64_t rows) {
    const auto options = at::TensorOptions(model.device()).dtype(model.hidden_type());
    at::Tensor result;
    size_t own = 0;
    for (int64_t stage = group->rank(); stage <= last; stage += num_ranks) {
      at::Tensor hidden;
      if (stage > 0) {
        hidden = at::empty({tokens, model.config().hidden_size}, options);
        group->recv(hidden, (stage - 1) % num_ranks, 0, false,
                    {comm::hint("hidden states of the stage before")});
      }
      result = run(own++, hidden).contiguous();
      if (stage < last) {
        group->send(result, (stage + 1) % num_ranks, 0, false,
                    {comm::hint("hidden states for the next stage")});
      }
    }
    if (group->rank() != last % num_ranks) result = at::empty({rows, model.config().vocab_size}, options);
    group->broadcast(result, last % num_ranks, false, {comm::hint("logits of the last stage")});
    return result;
  };
  model.set_decode_stages(std::move(stages));
}

StagedModel::StagedModel(CausalLM& model, parallel::ShardedModel& sharded, parallel::Pipeline pipeline,
                         int64_t ranks_per_batch)
    : model_(model), sharded_(sharded), pipeline_(std::move(pipeline)), ranks_per_batch_(ranks_per_batch) {}

at::Tensor StagedModel::run(const Pass& pass) const {
  const auto run_blocks = [&](int64_t m, int64_t begin, int64_t end, const at::Tensor& hidden) {
    return model_.run_blocks(pass.micro_batches[m], begin, end, hidden);
  };
  const auto make_hidden = [&](int64_t m) {
    const int64_t tokens = pass.micro_batches[m].input_ids.size(0) / ranks_per_batch_;
    return at::empty({tokens + model_.carried_rows(), model_.config().hidden_size},
                     at::TensorOptions(model_.device()).dtype(model_.hidden_type()));
  };
  return pipeline_.run(sharded_, {static_cast<int64_t>(pass.micro_batches.size()), run_blocks, make_hidden,
                                  pass.scale, pass.random_place});
}

}  // namespace tessera::models
