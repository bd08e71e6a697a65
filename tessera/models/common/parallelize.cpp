#include "tessera/models/common/parallelize.h"

#include "tessera/models/parallelize_plan.h"
#include "tessera/parallel/activation_checkpoint.h"
#include "tessera/parallel/tensor_parallel/tensor_parallel.h"

namespace tessera::models {

std::unique_ptr<parallel::ShardedModel> parallelize(CausalLM& model, const parallel::DeviceMesh& mesh,
                                                    const ParallelizeOptions& options) {
  parallel::ShardOptions shard = options.shard;
  if (mesh.size(parallel::kAxisTp) > 1) {
    const parallel::TensorParallelOptions tp{.sequence_parallel = options.sequence_parallel};
    shard.layouts = parallel::tensor_parallel(model, tensor_parallel_plan(model),
                                              {parallel::kAxisTp, mesh.group(parallel::kAxisTp)}, tp);
    parallel::tensor_parallel_head(model.head(), shard.layouts, tp);
  }
  const auto& blocks = model.blocks();
  for (const auto& block : blocks) {
    if (options.checkpoint_blocks) parallel::checkpoint_activations(*block);
    if (options.recompute_mlps) block->recompute_hidden();
  }
  const parallel::ShardGroups groups{mesh.group(parallel::kAxisFsdp), mesh.group(parallel::kAxisDpReplicate)};
  return parallel::fully_shard(model, groups, {blocks.begin(), blocks.end()}, shard);
}

}  // namespace tessera::models
