#include "tessera/models/parallelize_plan.h"

#include "tessera/core/error.h"
#include "tessera/models/family.h"

namespace tessera::models {

parallel::TensorParallelPlan tensor_parallel_plan(const CausalLM& model) {
  if (const auto plan = family_of(model.config()).plan) return plan(model);
  throw Error(ErrorKind::Config, "TENSOR-PARALLEL",
              "tensor parallelism is not built for model_type '" + model.config().model_type + "'")
      .hint("leave out tensor_parallel_size");
}

}  // namespace tessera::models
