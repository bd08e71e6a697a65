// Finds the matrices that optim_target_modules means.
#pragma once

#include <string>
#include <vector>

#include "tessera/optim/optimizer.h"

namespace tessera::train {

// Says of each tile whether the entries of optim_target_modules name its module, as Transformers reads them:
// an entry is a part of the module's name, or a regular expression for the whole of it; all-linear names
// every module. Without entries, the rule of the optimizer decides. Throws Error(Config, "LORA-TARGET") for
// an entry that is no expression.
void set_targets(const std::vector<std::string>& modules, std::vector<optim::OptimizedTile>& tiles);

// Throws Error(Config, "OPTIM-TARGET") if there are entries and they name none of the trained parameters
// `names`, and what set_targets() throws.
void check_targets(const std::vector<std::string>& modules, const std::vector<std::string>& names);

}  // namespace tessera::train
