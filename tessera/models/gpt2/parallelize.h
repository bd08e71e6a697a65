// How the layers of GPT-2 are cut.
#pragma once

#include "tessera/models/gpt2/model.h"
#include "tessera/parallel/tensor_parallel/plan.h"

namespace tessera::models {

// Attention between its heads, the MLP along its hidden size, embedding and output projection along the
// vocabulary. Positions and norms are whole on every rank.
parallel::TensorParallelPlan tensor_parallel_plan(const Gpt2ForCausalLM& model);

}  // namespace tessera::models
