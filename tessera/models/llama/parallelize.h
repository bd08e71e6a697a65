// How tensor parallelism cuts the layers of the Llama family.
#pragma once

#include "tessera/models/common/causal_lm.h"

namespace tessera::parallel {
struct TensorParallelPlan;
}

namespace tessera::models {

// Returns the plan for a model of this family (transformer_plan()).
parallel::TensorParallelPlan llama_plan(const CausalLM& model);

}  // namespace tessera::models
