#include "tessera/models/common/parallelize.h"

#include <optional>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/models/parallelize_plan.h"
#include "tessera/parallel/activation_checkpoint.h"
#include "tessera/parallel/activation_offload.h"
#include "tessera/parallel/context_parallel/context_parallel.h"
#include "tessera/parallel/expert_parallel/expert_parallel.h"

namespace tessera::models {

parallel::ParameterLayouts cut_layers(CausalLM& model, const parallel::RankAxis& axis,
                                      const parallel::TensorParallelOptions& options) {
  parallel::ParameterLayouts layouts =
      parallel::tensor_parallel(model, tensor_parallel_plan(model), axis, options);
  parallel::tensor_parallel_head(model.head(), layouts, axis, options);
  return layouts;
}

void check_context_parallel(const CausalLM& model, int64_t ranks) {
  if (ranks == 1 || !model.config().is_encoder_decoder) return;
  throw Error(
      ErrorKind::Config, "CONTEXT-PARALLEL",
      "context parallelism is not supported for an encoder-decoder, whose attention has a bias for each "
      "distance")
      .hint("leave out context_parallel_size");
}

ParallelModel parallelize(CausalLM& model, const parallel::DeviceMesh& mesh,
                          const ParallelizeOptions& options) {
  parallel::ShardOptions shard = options.shard;
  if (mesh.size(parallel::kAxisTp) > 1) {
    shard.layouts =
        cut_layers(model, {parallel::kAxisTp, mesh.group(parallel::kAxisTp)}, options.tensor_parallel);
  }
  check_context_parallel(model, mesh.size(parallel::kAxisCp));
  if (mesh.size(parallel::kAxisCp) > 1) {
    const auto& cp = mesh.group(parallel::kAxisCp);
    parallel::context_parallel(model, options.context_parallel, cp);
    model.set_token_sum(
        [cp](const at::Tensor& sums) { cp->all_reduce(sums, false, {comm::hint("choices of experts")}); });
  }
  std::optional<parallel::Pipeline> pipeline;
  if (options.pipeline) {
    const parallel::RankAxis pp{parallel::kAxisPp, mesh.group(parallel::kAxisPp)};
    pipeline.emplace(model, pipeline_parts(model), *options.pipeline, pp, shard.layouts);
    decode_in_stages(model, *options.pipeline, pp.group);
  }
  if (mesh.size(parallel::kAxisEp) > 1) {
    parallel::expert_parallel(
        model, {parallel::kAxisEp, mesh.group(parallel::kAxisEp)},
        {mesh.group(parallel::kAxisExpertShard), mesh.group(parallel::kAxisDpReplicate)}, shard.layouts);
  }
  const auto& blocks = model.blocks();
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto number = static_cast<int64_t>(i + 1), every = options.checkpoint_every;
    if (every > 0 && number % every == 0) parallel::checkpoint_activations(*blocks[i]);
    if (options.recompute_mlps) blocks[i]->recompute_hidden();
  }
  if (options.least_offloaded_bytes > 0)
    parallel::offload_activations({blocks.begin(), blocks.end()}, mesh.device(),
                                  options.least_offloaded_bytes);
  const parallel::ShardGroups groups{mesh.group(parallel::kAxisFsdp), mesh.group(parallel::kAxisDpReplicate),
                                     mesh.group(parallel::kAxisHpz), mesh.group(parallel::kAxisMachine),
                                     mesh.group(parallel::kAxisMachines)};
  ParallelModel result;
  result.sharded = parallel::fully_shard(model, groups, {blocks.begin(), blocks.end()}, shard);
  if (pipeline) {
    const int64_t ranks_per_batch =
        options.tensor_parallel.sequence_parallel ? mesh.size(parallel::kAxisTp) : 1;
    result.pipeline =
        std::make_unique<StagedModel>(model, *result.sharded, *std::move(pipeline), ranks_per_batch);
  }
  return result;
}

}  // namespace tessera::models
