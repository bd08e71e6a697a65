#include "tessera/models/llama/parallelize.h"

#include "tessera/models/common/parallelize_blocks.h"

namespace tessera::models {

parallel::TensorParallelPlan llama_plan(const CausalLM& model) {
  using parallel::LayerStyle;
  return transformer_plan(
      model, "model.layers",
      {{"model.embed_tokens", LayerStyle::vocabulary()}, {"model.norm", LayerStyle::per_token()}});
}

}  // namespace tessera::models
