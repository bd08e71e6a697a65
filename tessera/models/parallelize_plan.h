// Finds the tensor-parallel plan of any model.
#pragma once

#include "tessera/models/common/causal_lm.h"
#include "tessera/parallel/tensor_parallel/plan.h"

namespace tessera::models {

// Returns the plan by which tensor parallelism cuts the model's layers. The options of the blocks and the
// roles of the layers outside of them say what each is. Attention is cut between its key/value heads, each
// with the query heads that share it. If q, k and v are layers of their own, there may be more ranks than
// key/value heads of the layer that has the fewest: it is then cut between query heads, and ranks hold copies
// of keys and values, but in layers with more of these. A gated
// delta net is cut between its key heads, each with the value heads that read it. An MLP, and every expert,
// is cut along its hidden size, embedding and output projection along the vocabulary. Tables of positions and
// norms are whole on every rank. Throws Error(Config, "TENSOR-PARALLEL") for a model whose blocks are no
// nn::TransformerBlocks.
parallel::TensorParallelPlan tensor_parallel_plan(const CausalLM& model);

}  // namespace tessera::models
