#include "tessera/models/common/parallelize.h"

#include "tessera/parallel/activation_checkpoint.h"

namespace tessera::models {

std::unique_ptr<parallel::ShardedModel> parallelize(CausalLM& model, const parallel::DeviceMesh& mesh,
                                                    const ParallelizeOptions& options) {
  const auto& blocks = model.blocks();
  for (const auto& block : blocks) {
    if (options.checkpoint_blocks) parallel::checkpoint_activations(*block);
    if (options.recompute_mlps) block->recompute_hidden();
  }
  const parallel::ShardGroups groups{mesh.group(parallel::kAxisFsdp), mesh.group(parallel::kAxisDpReplicate)};
  return parallel::fully_shard(model, groups, {blocks.begin(), blocks.end()}, options.shard);
}

}  // namespace tessera::models
