#include "tessera/models/llama/gguf.h"

#include <algorithm>

#include "tessera/checkpoint/llama3_rope.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/models/llama/config.h"

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

Error unsupported(const LlamaConfig& config, const char* key, const std::string& what) {
  Error error(ErrorKind::Model, "UNSUPPORTED", what);
  error.in(config.source_file + ": key '" + key + "'");
  return error;
}

// Returns the context length for the file. Its readers look at all tokens before one, whatever window the
// model has: within the shortest window both are the same.
int64_t context_length(const LlamaConfig& config) {
  int64_t length = config.max_position_embeddings;
  for (const int64_t window : config.windows) {
    if (window > 0) length = std::min(length, window);
  }
  if (length < config.max_position_embeddings) {
    log::warn("GGUF files of this model have no sliding window: their context_length is the window, " +
              std::to_string(length));
  }
  return length;
}

std::vector<float> add_rope(const LlamaConfig& config, const checkpoint::GgufArchitecture& architecture,
                            io::GgufMetadata& metadata) {
  const nn::RopeOptions& rope = config.rope;
  const std::string prefix = architecture.name + ".rope.";
  metadata.add(prefix + "dimension_count", static_cast<uint32_t>(config.head_dim));
  metadata.add(prefix + "freq_base", static_cast<float>(rope.theta));
  if (rope.type == nn::RopeType::Default) return {};
  if (rope.type == nn::RopeType::Linear) {
    metadata.add(prefix + "scaling.type", "linear");
    metadata.add(prefix + "scaling.factor", static_cast<float>(rope.factor));
    return {};
  }
  if (rope.type != nn::RopeType::Llama3 || !architecture.has_rope_factors) {
    throw unsupported(config, "rope_scaling",
                      "this scaling of rotary positions is not written to GGUF files of the architecture '" +
                          architecture.name + "'")
        .need(architecture.has_rope_factors ? "default, linear or llama3" : "default or linear");
  }
  return checkpoint::llama3_divisors({.factor = rope.factor,
                                      .low_freq_factor = rope.low_freq_factor,
                                      .high_freq_factor = rope.high_freq_factor,
                                      .original_length = rope.original_max_position_embeddings},
                                     rope.theta, config.head_dim);
}

}  // namespace

std::vector<float> add_llama_gguf_metadata(const ModelConfig& model_config,
                                           const checkpoint::GgufArchitecture& architecture,
                                           io::GgufMetadata& metadata) {
  const auto* const config = dynamic_cast<const LlamaConfig*>(&model_config);
  TESSERA_ASSERT(config != nullptr, "a config of the Llama family");
  const int64_t width = config->num_heads * config->head_dim;
  if (architecture.needs_whole_heads && width != config->hidden_size) {
    throw unsupported(*config, "head_dim",
                      "llama.cpp cannot load such a model if the heads together have another size")
        .got(std::to_string(width))
        .need("hidden_size " + std::to_string(config->hidden_size));
  }
  const std::string prefix = architecture.name + ".";
  const std::pair<const char*, int64_t> sizes[] = {{"vocab_size", config->vocab_size},
                                                   {"block_count", config->num_layers},
                                                   {"context_length", context_length(*config)},
                                                   {"embedding_length", config->hidden_size},
                                                   {"feed_forward_length", config->intermediate_size},
                                                   {"attention.head_count", config->num_heads},
                                                   {"attention.head_count_kv", config->num_kv_heads},
                                                   {"attention.key_length", config->head_dim},
                                                   {"attention.value_length", config->head_dim}};
  for (const auto& [key, size] : sizes) metadata.add(prefix + key, static_cast<uint32_t>(size));
  metadata.add(prefix + "attention.layer_norm_rms_epsilon", static_cast<float>(config->rms_norm_eps));
  return add_rope(*config, architecture, metadata);
}

std::vector<checkpoint::GgufArchitecture> llama_gguf_architectures() {
  return {
      {"llama",
       "llama",
       "LlamaForCausalLM",
       true,
       true,
       kOuterNames,
       kLayerNames,
       "model.layers.",
       true,
       {"mistral"}},
      {.name = "qwen2",
       .model_type = "qwen2",
       .class_name = "Qwen2ForCausalLM",
       .outer_names = kOuterNames,
       .layer_names = kLayerNames,
       .layers = "model.layers.",
       .needs_whole_heads = true},
      {"qwen3", "qwen3", "Qwen3ForCausalLM", false, false, kOuterNames, kLayerNames, "model.layers."},
  };
}

}  // namespace tessera::models
