// The bytes that a training step sends, by what they are sent for.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "tessera/planner/choice.h"
#include "tessera/planner/step_parts.h"

namespace tessera::planner {

// The reasons for which bytes are sent: parameters and gradients between the ranks that hold parts of them
// (along dp_shard and cp) and between copies (dp_replicate), the activations of an axis, and hidden states
// and their gradients between the stages of a pipeline. Parts that are cut along cp alone travel on its axis,
// and count for Context.
enum class Purpose { Sharding, Copies, Tensor, Context, Experts, Stages };
inline constexpr size_t kNumPurposes = 6;
std::string_view purpose_name(Purpose purpose);

// Bytes that the first rank sends in a step, by purpose.
struct StepTraffic {
  std::array<double, kNumPurposes> bytes{};

  double& of(Purpose purpose) { return bytes[static_cast<size_t>(purpose)]; }
  double of(Purpose purpose) const { return bytes[static_cast<size_t>(purpose)]; }
};

// `parts` are those of the choice; `layers` of the whole model. What a step sends beside them (losses, norms,
// counts) is a few KB. Ranks that share memory count what they read of each other as sent.
StepTraffic step_traffic(const StepParts& parts, const Choice& choice, double layers);

}  // namespace tessera::planner
