// How the layers of the Llama family are cut.
#pragma once

#include "tessera/models/llama/model.h"
#include "tessera/parallel/tensor_parallel/plan.h"

namespace tessera::models {

// Attention between its key/value heads, each with the query heads that share it, and with more ranks than
// these between query heads, beside copies of keys and values; the MLP along its hidden
// size; embedding and output projection along the vocabulary.
parallel::TensorParallelPlan tensor_parallel_plan(const LlamaForCausalLM& model);

}  // namespace tessera::models
