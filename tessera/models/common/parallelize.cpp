#include "tessera/models/common/parallelize.h"

#include "tessera/parallel/activation_checkpoint.h"

namespace tessera::models {

std::unique_ptr<parallel::ShardedModel> parallelize(CausalLM& model, const parallel::DeviceMesh& mesh,
                                                    const ParallelizeOptions& options) {
  const auto blocks = model.blocks();
  if (options.checkpoint_activations) {
    for (const auto& block : blocks) parallel::checkpoint_activations(*block);
  }
  const parallel::ShardGroups groups{mesh.group(parallel::kAxisFsdp), mesh.group(parallel::kAxisDpReplicate)};
  return parallel::fully_shard(model, groups, blocks, options.shard);
}

}  // namespace tessera::models
