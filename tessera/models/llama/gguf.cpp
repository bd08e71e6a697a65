#include "tessera/models/llama/gguf.h"

namespace tessera::models {
namespace {

using checkpoint::GgufName;

constexpr GgufName kOuterNames[] = {
    {"token_embd.weight", "model.embed_tokens.weight", true},
    {"output_norm.weight", "model.norm.weight", true},
    {"output.weight", "lm_head.weight"},
};
constexpr GgufName kLayerNames[] = {
    {"attn_norm.weight", "input_layernorm.weight", true},
    {"attn_q.weight", "self_attn.q_proj.weight", true, true},
    {"attn_k.weight", "self_attn.k_proj.weight", true, true},
    {"attn_v.weight", "self_attn.v_proj.weight", true},
    {"attn_q.bias", "self_attn.q_proj.bias", false, true},
    {"attn_k.bias", "self_attn.k_proj.bias", false, true},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight", true},
    {"attn_output.bias", "self_attn.o_proj.bias"},
    {"ffn_norm.weight", "post_attention_layernorm.weight", true},
    {"ffn_gate.weight", "mlp.gate_proj.weight", true},
    {"ffn_up.weight", "mlp.up_proj.weight", true},
    {"ffn_down.weight", "mlp.down_proj.weight", true},
};

}  // namespace

std::vector<checkpoint::GgufArchitecture> llama_gguf_architectures() {
  return {
      {"llama", "llama", "LlamaForCausalLM", true, true, kOuterNames, kLayerNames, "model.layers."},
      {"qwen2", "qwen2", "Qwen2ForCausalLM", false, false, kOuterNames, kLayerNames, "model.layers."},
      {"qwen3", "qwen3", "Qwen3ForCausalLM", false, false, kOuterNames, kLayerNames, "model.layers."},
  };
}

}  // namespace tessera::models
