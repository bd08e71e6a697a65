#include "tessera/models/gpt2/parallelize.h"

#include <string>

namespace tessera::models {

parallel::TensorParallelPlan tensor_parallel_plan(const Gpt2ForCausalLM& model) {
  using parallel::LayerStyle;
  const int64_t head_dim = model.config().head_dim;
  parallel::TensorParallelPlan plan;
  auto& layers = plan.layers;
  layers = {{"transformer.wte", LayerStyle::vocabulary()},
            {"transformer.wpe", LayerStyle::sliced()},
            {"transformer.ln_f", LayerStyle::per_token()}};
  if (model.lm_head != nullptr) layers.emplace_back("lm_head", LayerStyle::vocabulary());
  for (size_t i = 0; i < model.blocks().size(); ++i) {
    const std::string block = "transformer.h." + std::to_string(i) + ".";
    const auto add = [&](const char* layer, LayerStyle style) { layers.emplace_back(block + layer, style); };
    add("ln_1", LayerStyle::per_token());
    add("attn", LayerStyle::region());
    add("attn.c_attn", LayerStyle::colwise(3 * head_dim));  // a head's query, key and value
    add("attn.c_proj", LayerStyle::rowwise(head_dim));
    add("ln_2", LayerStyle::per_token());
    add("mlp", LayerStyle::region());
    add("mlp.c_fc", LayerStyle::colwise());
    add("mlp.c_proj", LayerStyle::rowwise());
  }
  return plan;
}

}  // namespace tessera::models
