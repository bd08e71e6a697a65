#include "tessera/models/common/parallelize_blocks.h"

#include <utility>

#include "tessera/core/error.h"
#include "tessera/nn/transformer_block.h"

namespace tessera::models {
namespace {

using parallel::LayerStyle;
using parallel::StyledLayers;

void add_attention(const std::string& name, const nn::AttentionOptions& o, StyledLayers& layers) {
  const int64_t heads = o.num_heads / o.num_kv_heads, group = heads * o.head_dim;
  const auto add = [&](const std::string& layer, LayerStyle style) {
    layers.emplace_back(name + "." + layer, style);
  };
  layers.emplace_back(name, LayerStyle::region());
  if (o.qkv.empty()) {
    add(o.q, LayerStyle::colwise(group, o.head_dim));
    add(o.k, LayerStyle::shared_colwise(o.head_dim));
    add(o.v, LayerStyle::shared_colwise(o.head_dim));
  } else {
    add(o.qkv, LayerStyle::colwise((heads + 2) * o.head_dim));  // the queries, key and value of a head
  }
  add(o.o, LayerStyle::rowwise(group, o.head_dim));
  if (o.qk_norm) {
    add("q_norm", LayerStyle::partial_gradient());
    add("k_norm", LayerStyle::partial_gradient());
  }
}

void add_projections(const std::string& name, const nn::MLPOptions& o, LayerStyle down,
                     StyledLayers& layers) {
  if (!o.gate.empty()) layers.emplace_back(name + "." + o.gate, LayerStyle::colwise());
  layers.emplace_back(name + "." + o.up, LayerStyle::colwise());
  layers.emplace_back(name + "." + o.down, down);
}

// All ranks compute the whole router, so they choose the same experts, and the outputs of a token's experts
// are summed over ranks once.
void add_experts(const std::string& name, const nn::SparseMLPOptions& o, StyledLayers& layers) {
  layers.emplace_back(name, LayerStyle::summed_region());
  layers.emplace_back(name + ".gate", LayerStyle::partial_gradient());
  for (int64_t e = 0; e < o.num_experts; ++e) {
    add_projections(name + ".experts." + std::to_string(e), o.expert, LayerStyle::rowwise_part(), layers);
  }
}

void add_block(const std::string& name, const nn::TransformerBlockOptions& o, StyledLayers& layers) {
  layers.emplace_back(name + o.attention_norm_name, LayerStyle::per_token());
  add_attention(name + o.attention_name, o.attention, layers);
  layers.emplace_back(name + o.mlp_norm_name, LayerStyle::per_token());
  if (o.sparse) return add_experts(name + o.mlp_name, *o.sparse, layers);
  layers.emplace_back(name + o.mlp_name, LayerStyle::region());
  add_projections(name + o.mlp_name, o.mlp, LayerStyle::rowwise(), layers);
}

}  // namespace

parallel::TensorParallelPlan transformer_plan(const CausalLM& model, const std::string& blocks,
                                              StyledLayers outer) {
  parallel::TensorParallelPlan plan{std::move(outer)};
  if (!model.config().tie_word_embeddings) plan.layers.emplace_back("lm_head", LayerStyle::vocabulary());
  for (size_t i = 0; i < model.blocks().size(); ++i) {
    const auto* const block = dynamic_cast<const nn::TransformerBlock*>(model.blocks()[i].get());
    TESSERA_ASSERT(block != nullptr, "the plan is for blocks of another kind");
    const nn::TransformerBlockOptions& options = block->options();
    if (options.attention.qkv.empty()) plan.most_shared_parts = options.attention.num_kv_heads;
    add_block(blocks + "." + std::to_string(i) + ".", options, plan.layers);
  }
  return plan;
}

}  // namespace tessera::models
