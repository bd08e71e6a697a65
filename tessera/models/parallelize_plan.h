// How the layers of each family are cut.
#pragma once

#include "tessera/models/common/causal_lm.h"
#include "tessera/parallel/tensor_parallel/plan.h"

namespace tessera::models {

// For tensor parallelism. Throws Error(Config, "TENSOR-PARALLEL") for a model of a family without a plan.
parallel::TensorParallelPlan tensor_parallel_plan(const CausalLM& model);

}  // namespace tessera::models
