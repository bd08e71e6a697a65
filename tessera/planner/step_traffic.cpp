#include "tessera/planner/step_traffic.h"

#include <cmath>
#include <utility>

namespace tessera::planner {

std::string_view purpose_name(Purpose purpose) {
  static constexpr std::array<std::string_view, kNumPurposes> kNames = {
      "sharding", "copies", "tensor parallelism", "context parallelism", "experts", "stages"};
  return kNames[static_cast<size_t>(purpose)];
}

StepTraffic step_traffic(const StepParts& parts, const Choice& choice, double layers) {
  const auto micro_batches = static_cast<double>(choice.accumulation);
  // The first stage has one more than the last where the blocks do not divide evenly.
  const double blocks = std::ceil(layers / static_cast<double>(choice.pp) - 1e-9);
  const auto of_all = [&](const Transfer& block, const Transfer& root) {
    return blocks * block.bytes_sent + root.bytes_sent;
  };
  StepTraffic traffic;
  traffic.of(Purpose::Copies) = of_all(parts.reduce, parts.root_reduce);
  if (parts.gathers_updates) traffic.of(Purpose::Sharding) += of_all(parts.gather, parts.root_gather);
  const double scattered = of_all(parts.scatter, parts.root_scatter);
  if (choice.zero > 0) traffic.of(Purpose::Sharding) += parts.scatters * scattered;
  if (choice.zero == 3) {
    // Parameters outside of blocks stay gathered from the forward to the backward.
    traffic.of(Purpose::Sharding) +=
        micro_batches * (of_all(parts.gather, parts.root_gather) + blocks * parts.gather_back.bytes_sent);
  }
  const double per_step = micro_batches * blocks;
  traffic.of(Purpose::Tensor) =
      per_step * (parts.tensor_forward.bytes_sent + parts.tensor_backward.bytes_sent);
  traffic.of(Purpose::Context) =
      per_step * (parts.context_forward.bytes_sent + parts.context_backward.bytes_sent);
  traffic.of(Purpose::Experts) = per_step * 4.0 * parts.expert_exchange.bytes_sent;
  // The first stage of a rank's first one receives gradients alone, and sends none.
  const auto stages = static_cast<double>(choice.stages_per_rank);
  traffic.of(Purpose::Stages) = micro_batches * (2.0 * stages - 1.0) * parts.stage_message.bytes_sent;
  if (choice.dp_shard == 1 && choice.cp > 1)
    traffic.of(Purpose::Context) += std::exchange(traffic.of(Purpose::Sharding), 0.0);
  return traffic;
}

}  // namespace tessera::planner
