#include "tessera/planner/choice.h"

namespace tessera::planner {

std::vector<std::string> Choice::recipe_lines(const Job& job) const {
  std::vector<std::string> lines;
  const auto add = [&](const std::string& key, const std::string& value) {
    lines.push_back(key + ": " + value);
  };
  const auto size = [&](const std::string& key, int64_t value) { add(key, std::to_string(value)); };
  size("dp_replicate_size", dp_replicate);
  size("dp_shard_size", dp_shard);
  size("context_parallel_size", cp);
  size("tensor_parallel_size", tp);
  size("pipeline_parallel_size", pp);
  size("expert_parallel_size", ep);
  size("zero_stage", zero);
  size("zero_hpz_partition_size", hpz);
  if (pp > 1) {
    add("pipeline_schedule", schedule == PipelineKind::GPipe         ? "gpipe"
                             : schedule == PipelineKind::Interleaved ? "interleaved"
                             : schedule == PipelineKind::ZeroBubble  ? "zero_bubble"
                                                                     : "1f1b");
    size("pipeline_stages_per_rank", stages_per_rank);
  }
  size("sequence_len", job.sequence);
  size("micro_batch_size", micro_batch);
  size("gradient_accumulation_steps", accumulation);
  add("gradient_checkpointing", recompute == Recompute::Block ? "true"
                                : recompute == Recompute::Mlp ? "mlp"
                                                              : "false");
  add("offload_optimizer_device", offload == Offload::HostStates    ? "cpu"
                                  : offload == Offload::DriveStates ? "nvme"
                                                                    : "none");
  return lines;
}

}  // namespace tessera::planner
