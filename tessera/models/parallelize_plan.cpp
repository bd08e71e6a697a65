#include "tessera/models/parallelize_plan.h"

#include "tessera/core/error.h"
#include "tessera/models/gpt2/model.h"
#include "tessera/models/gpt2/parallelize.h"
#include "tessera/models/llama/model.h"
#include "tessera/models/llama/parallelize.h"

namespace tessera::models {

// A new family adds one line here.
parallel::TensorParallelPlan tensor_parallel_plan(const CausalLM& model) {
  if (dynamic_cast<const LlamaForCausalLM*>(&model) != nullptr) return llama_plan(model);
  if (dynamic_cast<const Gpt2ForCausalLM*>(&model) != nullptr) return gpt2_plan(model);
  throw Error(ErrorKind::Config, "TENSOR-PARALLEL",
              "tensor parallelism is not built for model_type '" + model.config().model_type + "'")
      .hint("leave out tensor_parallel_size");
}

}  // namespace tessera::models
