// How tensor parallelism cuts the layers of GPT-2.
#pragma once

#include "tessera/models/gpt2/model.h"
#include "tessera/parallel/tensor_parallel/plan.h"

namespace tessera::models {

// Returns the plan: attention is cut between its heads, the MLP along its hidden size, embedding and output
// projection along the vocabulary. The table of positions and the norms are whole on every rank.
parallel::TensorParallelPlan tensor_parallel_plan(const Gpt2ForCausalLM& model);

}  // namespace tessera::models
