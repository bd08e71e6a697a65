#include "tessera/models/llama/kind.h"

#include <algorithm>

#include "tessera/core/error.h"

namespace tessera::models {
namespace {

const std::vector<LlamaKind>& llama_kinds() {
  static const std::vector<LlamaKind> kinds = {
      {.model_type = "llama", .has_mlp_bias_key = true},
      {.model_type = "mistral",
       .max_position_embeddings = 131072,
       .has_attention_bias_key = false,
       .windows = LlamaWindows::All,
       .default_window = 4096},
      {.model_type = "mixtral",
       .rope_theta = 1e6,
       .rms_norm_eps = 1e-5,
       .max_position_embeddings = 131072,
       .has_attention_bias_key = false,
       .windows = LlamaWindows::All,
       .experts = ExpertKeys{.num_experts = 8,
                             .experts_per_token = 2,
                             .has_jitter_key = true,
                             .mlp_name = "block_sparse_moe",
                             .gate = "w1",
                             .up = "w3",
                             .down = "w2",
                             .transformers_name = "mlp"}},
      {.model_type = "qwen2",
       .max_position_embeddings = 32768,
       .has_qkv_bias = true,
       .windows = LlamaWindows::SomeIfAsked},
      {.model_type = "qwen3",
       .max_position_embeddings = 32768,
       .head_dim = 128,
       .qk_norm = true,
       .windows = LlamaWindows::SomeIfAsked},
      {.model_type = "qwen3_moe",
       .max_position_embeddings = 32768,
       .qk_norm = true,
       .windows = LlamaWindows::AllIfAsked,
       .experts = ExpertKeys{.has_num_experts_key = true,
                             .num_experts = 128,
                             .experts_per_token = 8,
                             .size_key = "moe_intermediate_size",
                             .size = 768,
                             .has_norm_key = true,
                             .has_layer_keys = true}},
  };
  return kinds;
}

}  // namespace

const LlamaKind& llama_kind(const std::string& model_type) {
  const auto found = std::ranges::find(llama_kinds(), model_type, &LlamaKind::model_type);
  TESSERA_ASSERT(found != llama_kinds().end(), "a model_type of the Llama family, not '" + model_type + "'");
  return *found;
}

std::vector<std::string> llama_model_types() {
  std::vector<std::string> types;
  for (const LlamaKind& kind : llama_kinds()) types.push_back(kind.model_type);
  return types;
}

}  // namespace tessera::models
