// How tensor parallelism cuts the layers of the Llama family.
#pragma once

#include "tessera/models/llama/model.h"
#include "tessera/parallel/tensor_parallel/plan.h"

namespace tessera::models {

// Returns the plan. Attention is cut between its key/value heads, each with the query heads that share it; if
// there are more ranks than key/value heads, it is cut between query heads, and ranks hold copies of keys and
// values. The MLP is cut along its hidden size, embedding and output projection along the vocabulary.
parallel::TensorParallelPlan tensor_parallel_plan(const LlamaForCausalLM& model);

}  // namespace tessera::models
