#include "tessera/models/llama/config.h"

namespace tessera::models {
namespace {

nn::TransformerBlockOptions block_options(const LlamaConfig& c, int64_t layer) {
  nn::TransformerBlockOptions o;
  o.attention = {.hidden_size = c.hidden_size,
                 .num_heads = c.num_heads,
                 .num_kv_heads = c.num_kv_heads,
                 .head_dim = c.head_dim,
                 .qkv_bias = c.qkv_bias,
                 .output_bias = c.output_bias,
                 .window = c.windows.empty() ? 0 : c.windows.at(static_cast<size_t>(layer)),
                 .dropout = c.attention_dropout};
  if (c.qk_norm) o.attention.qk_norm = nn::QkNormOptions{.norm = {.eps = c.rms_norm_eps}};
  o.mlp = {.hidden_size = c.hidden_size, .intermediate_size = c.intermediate_size, .bias = c.mlp_bias};
  o.norm.eps = c.rms_norm_eps;
  if (!c.experts.is_sparse(layer)) return o;
  const ExpertKeys& keys = c.kind().experts.value();
  o.mlp_name = keys.mlp_name;
  o.sparse = expert_options(c, c.experts, keys);
  return o;
}

}  // namespace

std::shared_ptr<const ModelConfig> LlamaConfig::with_joined_experts() const {
  if (has_joined_experts || num_experts == 0) return {};
  auto joined = std::make_shared<LlamaConfig>(*this);
  joined->has_joined_experts = true;
  return joined;
}

Decoder llama_decoder(const LlamaConfig& c) {
  Decoder decoder;
  for (int64_t i = 0; i < c.num_layers; ++i) decoder.blocks.push_back(block_options(c, i));
  if (c.has_joined_experts) join_projections(decoder.blocks);
  decoder.ropes = {c.rope};
  decoder.norm.eps = c.rms_norm_eps;
  return decoder;
}

}  // namespace tessera::models
