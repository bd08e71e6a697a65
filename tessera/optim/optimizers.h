// Makes the optimizers of the table (core/optimizer_table.h).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tessera/core/optimizer_table.h"
#include "tessera/optim/optimizer.h"
#include "tessera/optim/rule.h"

namespace tessera::optim {

// Makes any optimizer of the table but AdamW itself, which make_adamw() makes. The options are
// default_options(kind) with what the caller changed. Tiles lie on the devices that update them, except for
// gradient descent without momentum. make_ruled() says what the tiles need, and what `seed` and `spill` mean.
std::unique_ptr<Optimizer> make_optimizer(OptimizerKind kind, std::vector<OptimizedTile> tiles,
                                          const OptimizerOptions& options, uint64_t seed,
                                          const std::optional<SpillPlace>& spill = {});

// Bytes of what an optimizer keeps of a whole parameter: values that are cut as the parameter is, and values
// that every rank which holds a part of it has alike.
struct StateSize {
  int64_t cut_bytes = 0, whole_bytes = 0;
};
// Returns the sizes for an optimizer of the table but AdamW itself, without making it.
StateSize state_size(OptimizerKind kind, const RuleParameter& parameter, const OptimizerOptions& options);

}  // namespace tessera::optim
