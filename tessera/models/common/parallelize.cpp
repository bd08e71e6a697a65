#include "tessera/models/common/parallelize.h"

#include "tessera/models/parallelize_plan.h"
#include "tessera/parallel/activation_checkpoint.h"
#include "tessera/parallel/context_parallel/context_parallel.h"
#include "tessera/parallel/tensor_parallel/tensor_parallel.h"

namespace tessera::models {

std::unique_ptr<parallel::ShardedModel> parallelize(CausalLM& model, const parallel::DeviceMesh& mesh,
                                                    const ParallelizeOptions& options) {
  parallel::ShardOptions shard = options.shard;
  if (mesh.size(parallel::kAxisTp) > 1) {
    const parallel::TensorParallelOptions tp{.sequence_parallel = options.sequence_parallel};
    const parallel::RankAxis axis{parallel::kAxisTp, mesh.group(parallel::kAxisTp)};
    shard.layouts = parallel::tensor_parallel(model, tensor_parallel_plan(model), axis, tp);
    parallel::tensor_parallel_head(model.head(), shard.layouts, axis, tp);
  }
  if (mesh.size(parallel::kAxisCp) > 1) {
    parallel::context_parallel(model, options.context_parallel, mesh.group(parallel::kAxisCp));
  }
  if (options.pipeline) {
    shard.layouts = hold_by_stage(model, *options.pipeline, shard.layouts,
                                  {parallel::kAxisPp, mesh.group(parallel::kAxisPp)});
  }
  const auto& blocks = model.blocks();
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto number = static_cast<int64_t>(i + 1), every = options.checkpoint_every;
    if (every > 0 && number % every == 0) parallel::checkpoint_activations(*blocks[i]);
    if (options.recompute_mlps) blocks[i]->recompute_hidden();
  }
  const parallel::ShardGroups groups{mesh.group(parallel::kAxisFsdp), mesh.group(parallel::kAxisDpReplicate)};
  return parallel::fully_shard(model, groups, {blocks.begin(), blocks.end()}, shard);
}

}  // namespace tessera::models
