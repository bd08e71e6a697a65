// The tensor-parallel plan of models whose blocks are nn::TransformerBlocks.
#pragma once

#include <string>

#include "tessera/models/common/causal_lm.h"
#include "tessera/parallel/tensor_parallel/plan.h"

namespace tessera::models {

// Returns the plan of a model whose list of blocks is called `blocks`, such as "model.layers"; `outer` has
// the layers before and after the blocks, except `lm_head`, which is added where the embedding is not tied.
// Attention is cut between its key/value heads, each with the query heads that share it. If q, k and v are
// layers of their own, there may be more ranks than key/value heads: it is then cut between query heads, and
// ranks hold copies of keys and values. An MLP, and every expert, is cut along its hidden size. Norms are
// whole on every rank.
parallel::TensorParallelPlan transformer_plan(const CausalLM& model, const std::string& blocks,
                                              parallel::StyledLayers outer);

}  // namespace tessera::models
