// Adam-mini: one second moment for a block of elements.
#pragma once

#include "tessera/core/optimizer_table.h"
#include "tessera/optim/rule.h"

namespace tessera::optim {

// Zhang et al., "Adam-mini: use fewer learning rates to gain more" (2024), algorithm 2, as the package
// adam_mini computes it: AdamW whose second moment is the average of the mean square of a block. A block is
// what RuleParameter::row_blocks says of a matrix, and all of a vector.
RulePtr adam_mini_rule(const OptimizerOptions& options);

// Says whether the package keeps a second moment for each element: the parameter is a bias.
bool has_own_squares(const RuleParameter& parameter);

}  // namespace tessera::optim
