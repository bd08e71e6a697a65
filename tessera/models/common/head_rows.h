// Tells which rows of a model's projections belong to one attention head.
#pragma once

#include "tessera/models/common/causal_lm.h"
#include "tessera/nn/row_blocks.h"

namespace tessera::models {

// Returns the blocks of the weights that make queries and keys, by their names in named_parameters(): the
// rows of a head are a block. In a layer that makes values, too, each row of the values is one.
nn::ParameterBlocks head_rows(const CausalLM& model);

}  // namespace tessera::models
