// Finds the tensor-parallel plan of any model.
#pragma once

#include "tessera/models/common/causal_lm.h"
#include "tessera/parallel/tensor_parallel/plan.h"

namespace tessera::models {

// Returns the plan by which tensor parallelism cuts the model's layers. Throws Error(Config,
// "TENSOR-PARALLEL") for a model of a family without a plan.
parallel::TensorParallelPlan tensor_parallel_plan(const CausalLM& model);

}  // namespace tessera::models
