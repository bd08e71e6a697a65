#include "tessera/models/gpt2/parallelize.h"

#include "tessera/models/common/parallelize_blocks.h"

namespace tessera::models {

parallel::TensorParallelPlan gpt2_plan(const CausalLM& model) {
  using parallel::LayerStyle;
  return transformer_plan(model, "transformer.h",
                          {{"transformer.wte", LayerStyle::vocabulary()},
                           {"transformer.wpe", LayerStyle::sliced()},
                           {"transformer.ln_f", LayerStyle::per_token()}});
}

}  // namespace tessera::models
