#include "tessera/models/llama/parallelize.h"

#include <string>
#include <utility>
#include <vector>

namespace tessera::models {
namespace {

// Adds the plan of one sparse layer: every expert is cut along its hidden size. All ranks compute the whole
// router, so they choose the same experts, and the outputs of a token's experts are summed over ranks once.
void add_experts(const std::string& name, const nn::SparseMLP& mlp,
                 std::vector<std::pair<std::string, parallel::LayerStyle>>& layers) {
  using parallel::LayerStyle;
  const nn::MLPOptions& expert = mlp.options().expert;
  layers.emplace_back(name, LayerStyle::summed_region());
  layers.emplace_back(name + ".gate", LayerStyle::partial_gradient());
  for (size_t e = 0; e < mlp.experts.size(); ++e) {
    const std::string prefix = name + ".experts." + std::to_string(e) + ".";
    layers.emplace_back(prefix + expert.gate, LayerStyle::colwise());
    layers.emplace_back(prefix + expert.up, LayerStyle::colwise());
    layers.emplace_back(prefix + expert.down, LayerStyle::rowwise_part());
  }
}

}  // namespace

parallel::TensorParallelPlan tensor_parallel_plan(const LlamaForCausalLM& model) {
  using parallel::LayerStyle;
  const LlamaConfig& config = model.config();
  const int64_t group = config.num_heads / config.num_kv_heads * config.head_dim;
  parallel::TensorParallelPlan plan;
  plan.most_shared_parts = config.num_kv_heads;
  auto& layers = plan.layers;
  layers = {{"model.embed_tokens", LayerStyle::vocabulary()}, {"model.norm", LayerStyle::per_token()}};
  if (model.lm_head != nullptr) layers.emplace_back("lm_head", LayerStyle::vocabulary());
  for (size_t i = 0; i < model.blocks().size(); ++i) {
    const std::string block = "model.layers." + std::to_string(i) + ".";
    const auto add = [&](const char* layer, LayerStyle style) { layers.emplace_back(block + layer, style); };
    add("input_layernorm", LayerStyle::per_token());
    add("self_attn", LayerStyle::region());
    add("self_attn.q_proj", LayerStyle::colwise(group, config.head_dim));
    add("self_attn.k_proj", LayerStyle::shared_colwise(config.head_dim));
    add("self_attn.v_proj", LayerStyle::shared_colwise(config.head_dim));
    add("self_attn.o_proj", LayerStyle::rowwise(group, config.head_dim));
    if (config.qk_norm) {
      add("self_attn.q_norm", LayerStyle::partial_gradient());
      add("self_attn.k_norm", LayerStyle::partial_gradient());
    }
    add("post_attention_layernorm", LayerStyle::per_token());
    const auto* const layer = dynamic_cast<const nn::TransformerBlock*>(model.blocks()[i].get());
    if (layer != nullptr && layer->sparse_mlp != nullptr) {
      add_experts(block + config.mlp_name(static_cast<int64_t>(i)), *layer->sparse_mlp, layers);
      continue;
    }
    add("mlp", LayerStyle::region());
    add("mlp.gate_proj", LayerStyle::colwise());
    add("mlp.up_proj", LayerStyle::colwise());
    add("mlp.down_proj", LayerStyle::rowwise());
  }
  return plan;
}

}  // namespace tessera::models
