#include "tessera/optim/optimizers.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/optim/adam_mini_rule.h"
#include "tessera/optim/adamw_8bit.h"
#include "tessera/optim/element_rules.h"
#include "tessera/optim/low_rank_rules.h"
#include "tessera/optim/muon_rule.h"
#include "tessera/optim/ruled_optimizer.h"
#include "tessera/optim/whole_rules.h"

namespace tessera::optim {
namespace {

// Returns what chooses the rule of a parameter.
std::function<RulePtr(const RuleParameter&)> rules_of(OptimizerKind kind, const OptimizerOptions& options,
                                                      uint64_t seed) {
  const auto for_all = [](const RulePtr& rule) { return [rule](const RuleParameter&) { return rule; }; };
  const auto either = [](bool (*is_first)(const RuleParameter&), const RulePtr& first,
                         const RulePtr& second) {
    return [=](const RuleParameter& parameter) { return is_first(parameter) ? first : second; };
  };
  switch (kind) {
    case OptimizerKind::AdamW: break;
    case OptimizerKind::Sgd: return for_all(sgd_rule(options));
    case OptimizerKind::Lion: return for_all(lion_rule(options));
    case OptimizerKind::Adagrad: return for_all(adagrad_rule(options));
    case OptimizerKind::RmsProp: return for_all(rmsprop_rule(options));
    case OptimizerKind::AdEMAMix: return for_all(ademamix_rule(options));
    case OptimizerKind::ScheduleFreeAdamW: return for_all(schedule_free_rule(options));
    case OptimizerKind::AdamW8bit:
      return either(has_32bit_states, adamw_rule(options), adamw_8bit_rule(options));
    case OptimizerKind::StableAdamW: return for_all(stable_adamw_rule(options));
    case OptimizerKind::Lamb: return for_all(lamb_rule(options));
    case OptimizerKind::Adafactor: return for_all(adafactor_rule(options));
    case OptimizerKind::Came: return for_all(came_rule(options));
    case OptimizerKind::Muon:
    case OptimizerKind::MuonJordan:
    case OptimizerKind::MuonTorch: return either(is_for_muon, muon_rule(kind, options), adamw_rule(options));
    case OptimizerKind::AdamMini:
      return either(has_own_squares, adamw_rule(options), adam_mini_rule(options));
    case OptimizerKind::GaLore: return either(is_for_low_rank, galore_rule(options), adamw_rule(options));
    case OptimizerKind::Apollo:
    case OptimizerKind::ApolloMini:
      return either(is_for_low_rank, apollo_rule(options, seed), adamw_rule(options));
  }
  throw_internal(__FILE__, __LINE__, "a rule", "make_adamw() makes AdamW");
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(OptimizerKind kind, std::vector<OptimizedTile> tiles,
                                          const OptimizerOptions& options, uint64_t seed,
                                          const std::optional<SpillPlace>& spill) {
  const bool is_rounded = std::ranges::any_of(
      tiles, [](const OptimizedTile& tile) { return tile.tile.scalar_type() == at::kBFloat16; });
  // A tile that has no states may lie on the host beside the device that updates it.
  if (kind == OptimizerKind::Sgd && options.momentum == 0.0 && !is_rounded) return make_sgd(std::move(tiles));
  return make_ruled(std::move(tiles), rules_of(kind, options, seed), seed, spill);
}

StateSize state_size(OptimizerKind kind, const RuleParameter& parameter, const OptimizerOptions& options) {
  StateSize size;
  for (const RuleState& state : rules_of(kind, options, /*seed=*/0)(parameter)->states(parameter)) {
    const auto width = static_cast<int64_t>(c10::elementSize(state.type.value_or(parameter.type)));
    const bool is_cut = state.form == RuleState::Form::Tile;
    const int64_t numel = is_cut ? parameter.numel() : RuleParameter{state.shape}.numel();
    (is_cut ? size.cut_bytes : size.whole_bytes) += width * numel;
  }
  return size;
}

}  // namespace tessera::optim
