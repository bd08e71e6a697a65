// Runs rules over tiles.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/optim/optimizer.h"
#include "tessera/optim/rule.h"

namespace tessera::optim {

// Makes an optimizer that updates each parameter by the rule that `rule_of` gives for it. Tiles that are cut
// over several ranks need their axes (OptimizedTile::axes) if their rule has rounds or a matrix; step() is
// then collective over the groups of these axes. A tile may also be of a type of 16 bits: it is widened for
// the update, and a result in bfloat16 is rounded stochastically, by random bits that are a function of the
// seed, the number of the update, the parameter's name, and the place of an element in the whole parameter.
// `spill`, if set, says where Tile states lie; Whole states stay in memory. Throws Error(Config) for tiles
// without values, and for tiles that lie beside their device, and what SpilledStates throws.
std::unique_ptr<Optimizer> make_ruled(std::vector<OptimizedTile> tiles,
                                      const std::function<RulePtr(const RuleParameter&)>& rule_of,
                                      uint64_t seed, const std::optional<SpillPlace>& spill = {});

}  // namespace tessera::optim
