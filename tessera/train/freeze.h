// `unfrozen_parameters`: training a part of the weights.
#pragma once

#include <string>
#include <vector>

#include "tessera/checkpoint/state_dict_adapter.h"
#include "tessera/models/common/causal_lm.h"

namespace tessera::train {

// Trains those parameters alone whose name begins with what one of the regular expressions matches: their
// name in the model, or that of the tensors of its files that they are made of (`saved`). As in Axolotl, a
// dot means a dot, unless a + follows. Warns of patterns that match nothing. Before parallelize(). Throws
// Error(Config, "UNFROZEN") for a pattern that does not parse, one that ends in a range of rows, one that
// matches some of a parameter's tensors and not others, and patterns that match nothing at all.
void freeze_all_but(models::CausalLM& model, const checkpoint::StateDictAdapter& saved,
                    const std::vector<std::string>& patterns);

}  // namespace tessera::train
