// DeepSeek-V2 and V3 (arXiv 2405.04434, 2412.19437), and those that took their parts: GLM-4.5, GLM-4.7-Flash
// and Mistral 4.
#include <algorithm>
#include <cmath>

#include "tessera/models/common/read_config.h"
#include "tessera/models/decoder/read_experts.h"
#include "tessera/models/decoder/read_rope.h"
#include "tessera/models/decoder/read_sizes.h"
#include "tessera/models/families/families.h"

namespace tessera::models {
namespace {

// The defaults of the keys about latent attention.
struct LatentDefaults {
  int64_t q_rank = 1536, kv_rank = 512, plain_dim = 128, value_dim = 128;
  bool is_mistral = false;  // positions are those of Mistral 4
};

// Returns the factor by which the scores of scaled positions grow.
double score_factor(const io::JsonReader& reader, const nn::RopeOptions& rope) {
  if (rope.type == nn::RopeType::Default) return 1.0;
  const auto section = rope_section(reader);
  const double all_dim = section ? section->number("mscale_all_dim", 0.0, 1e6, 0.0) : 1.0;
  if (all_dim == 0.0 || rope.factor <= 1.0) return 1.0;
  const double mscale = 0.1 * all_dim * std::log(rope.factor) + 1.0;
  return mscale * mscale;
}

// Gives all blocks latent attention, and the model its rotary positions.
void set_latent_attention(const io::JsonReader& reader, DecoderConfig& c, const LatentDefaults& defaults) {
  const auto size = [&](const char* key, int64_t fallback) {
    return reader.integer(key, 1, kMaxSize, fallback);
  };
  nn::LatentOptions latent{.kv_rank = size("kv_lora_rank", defaults.kv_rank),
                           .rope_dim = size("qk_rope_head_dim", 64),
                           .value_dim = size("v_head_dim", defaults.value_dim),
                           .bias = reader.boolean("attention_bias", false)};
  if (!reader.is_null("q_lora_rank")) latent.q_rank = size("q_lora_rank", defaults.q_rank);
  const int64_t plain = reader.integer("qk_nope_head_dim", 0, kMaxSize, defaults.plain_dim);
  const int64_t head_dim = plain + latent.rope_dim;
  check_products(reader, c,
                 {{"kv_lora_rank", latent.kv_rank + latent.rope_dim},
                  {"q_lora_rank", latent.q_rank.value_or(1)},
                  {"v_head_dim", latent.value_dim * c.num_heads},
                  {"qk_nope_head_dim", head_dim * c.num_heads}});
  check_elements(reader, "q_lora_rank", head_dim * c.num_heads, latent.q_rank.value_or(1));
  check_elements(reader, "kv_lora_rank", (plain + latent.value_dim) * c.num_heads, latent.kv_rank);
  c.head_dim = defaults.is_mistral ? head_dim : latent.rope_dim;
  const double share = static_cast<double>(latent.rope_dim) / static_cast<double>(head_dim);
  const nn::RopeOptions rope =
      defaults.is_mistral ? read_mistral_rope(reader, c, {.factor = 128.0, .original_length = 8192},
                                              {.partial = share, .partial_key = "partial_rotary_factor"})
                          : read_rope(reader, c);
  if (rope.head_dim > latent.rope_dim)
    throw reader.problem("qk_rope_head_dim", "fewer elements than are rotated");
  set_rope(c, rope);
  c.head_dim = head_dim;
  c.num_kv_heads = c.num_heads;
  const bool is_interleaved = reader.boolean("rope_interleave", true);
  for (auto& block : c.decoder.blocks) {
    nn::AttentionOptions& attention = block.attention;
    attention.num_kv_heads = c.num_heads;
    attention.head_dim = c.head_dim;
    attention.scale = score_factor(reader, rope) / std::sqrt(static_cast<double>(c.head_dim));
    attention.is_interleaved = is_interleaved;
    attention.output_bias = latent.bias;
    attention.latent = latent;
  }
}

// Gives layers their experts, and an MLP for all tokens that is as wide as so many experts.
void set_shared_and_routed(const io::JsonReader& reader, DecoderConfig& c, const ExpertKeys& keys,
                           const nn::RouterOptions& router, int64_t num_shared) {
  const ExpertLayers layers = read_experts(reader, c, keys);
  num_shared = reader.integer("n_shared_experts", 0, 1000, num_shared);
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    if (!layers.is_sparse(layer)) continue;
    nn::TransformerBlockOptions& block = c.decoder.blocks[static_cast<size_t>(layer)];
    nn::SparseMLPOptions sparse = expert_options(c, layers, keys);
    const bool normalises = sparse.router.normalises;
    sparse.router = router;
    sparse.router.normalises = normalises;
    sparse.expert.activation = block.mlp.activation;
    if (num_shared > 0) {
      sparse.shared = block.mlp;
      sparse.shared->intermediate_size = num_shared * layers.size;
      sparse.shared_name = "shared_experts";
      sparse.has_shared_gate = false;
    }
    block.sparse = sparse;
  }
}

// Reads by how many groups the router chooses. Throws Error(Model, "CONFIG") for numbers that do not fit.
void read_groups(const io::JsonReader& reader, int64_t num_experts, int64_t groups, int64_t per_token,
                 int64_t num_chosen, nn::RouterOptions& router) {
  router.groups = reader.integer("n_group", 1, num_experts, groups);
  router.groups_per_token =
      reader.integer("topk_group", 1, router.groups, std::min(per_token, router.groups));
  const int64_t in_group = num_experts / router.groups;
  if (num_experts % router.groups != 0 || in_group < router.group_top ||
      router.groups_per_token * in_group < num_chosen) {
    throw reader.problem("n_group", "does not fit the number of experts")
        .got(std::to_string(router.groups) + " groups of " + std::to_string(num_experts) + " experts");
  }
}

struct V3Defaults {
  int64_t num_experts = 256, experts_per_token = 8, expert_size = 2048, groups = 8, groups_per_token = 4;
  double scale = 2.5;
  const char* first_key = "first_k_dense_replace";
  int64_t first_sparse = 3;
};

// Experts as in DeepSeek-V3, in groups. `router` tells the scores.
void set_v3_experts(const io::JsonReader& reader, DecoderConfig& c, const V3Defaults& defaults,
                    nn::RouterOptions router = {.is_sigmoid = true, .has_correction = true}) {
  const ExpertKeys keys{.count_key = "n_routed_experts",
                        .num_experts = defaults.num_experts,
                        .experts_per_token = defaults.experts_per_token,
                        .size_key = "moe_intermediate_size",
                        .size = defaults.expert_size,
                        .has_norm_key = true,
                        .normalises = true,
                        .first_key = defaults.first_key,
                        .first_sparse = defaults.first_sparse};
  router.group_top = 2;
  router.scale = reader.number("routed_scaling_factor", 1e-9, 1e9, defaults.scale);
  const int64_t experts = reader.integer(keys.count_key, 1, kMaxSize, keys.num_experts);
  const int64_t chosen = reader.integer("num_experts_per_tok", 1, kMaxSize, keys.experts_per_token);
  read_groups(reader, experts, defaults.groups, defaults.groups_per_token, chosen, router);
  set_shared_and_routed(reader, c, keys, router, 1);
  // They predict the tokens after the next.
  c.decoder.unread_layers = reader.integer("num_nextn_predict_layers", 0, kMaxLayers, 1);
}

}  // namespace

DecoderConfig read_deepseek_v2(const io::JsonReader& reader) {
  DecoderConfig c = read_decoder(reader, {.head_dim = 64});
  set_biases(c, false, false, reader.boolean("mlp_bias", false));
  set_latent_attention(reader, c, {});
  const ExpertKeys keys{.count_key = "n_routed_experts",
                        .num_experts = 64,
                        .size_key = "moe_intermediate_size",
                        .size = 1407,
                        .first_key = "first_k_dense_replace"};
  const int64_t chosen = reader.integer("num_experts_per_tok", 1, kMaxSize);
  nn::RouterOptions router;
  router.scale = reader.number("routed_scaling_factor", 1e-9, 1e9, 1.0);
  const std::string method = reader.text("topk_method", "greedy");
  if (method != "greedy" && method != "group_limited_greedy") {
    throw unsupported(reader, "topk_method", "this choice of experts is not implemented")
        .got(method)
        .need("greedy or group_limited_greedy");
  }
  if (method == "group_limited_greedy") {
    read_groups(reader, reader.integer(keys.count_key, 1, kMaxSize, keys.num_experts), 1, 1, chosen, router);
  }
  set_shared_and_routed(reader, c, keys, router, 2);
  // Transformers reads the key and does not divide by the sum.
  for (auto& block : c.decoder.blocks) {
    if (block.sparse) block.sparse->router.normalises = false;
  }
  return c;
}

DecoderConfig read_deepseek_v3(const io::JsonReader& reader) {
  DecoderConfig c = read_decoder(reader, {.max_position_embeddings = 4096, .head_dim = 64});
  set_latent_attention(reader, c, {});
  set_v3_experts(reader, c, {});
  return c;
}

DecoderConfig read_mistral4(const io::JsonReader& reader) {
  DecoderConfig c =
      read_decoder(reader, {.max_position_embeddings = 1048576, .head_dim = 128, .pad_token = 11});
  set_latent_attention(reader, c, {.q_rank = 1024, .kv_rank = 256, .plain_dim = 64, .is_mistral = true});
  set_v3_experts(reader, c,
                 {.num_experts = 128,
                  .experts_per_token = 4,
                  .groups = 1,
                  .groups_per_token = 1,
                  .scale = 1.0,
                  .first_sparse = 0},
                 {.is_sigmoid = false});
  stack_experts(c, {.gate_up = "experts.gate_up_proj", .down = "experts.down_proj"});
  return c;
}

DecoderConfig read_glm4_moe(const io::JsonReader& reader) {
  DecoderConfig c =
      read_decoder(reader, {.max_position_embeddings = 131072, .kv_heads = 8, .norm_eps = 1e-5});
  set_biases(c, reader.boolean("attention_bias", false), false, false);
  if (reader.boolean("use_qk_norm", false)) {
    for (auto& block : c.decoder.blocks) block.attention.qk_norm = nn::QkNormOptions{.norm = c.decoder.norm};
  }
  set_rope(c, read_rope(reader, c, {.partial = 0.5, .partial_key = "partial_rotary_factor"}));
  set_v3_experts(reader, c,
                 {.num_experts = 128,
                  .expert_size = 1408,
                  .groups = 1,
                  .groups_per_token = 1,
                  .scale = 1.0,
                  .first_sparse = 1});
  return c;
}

DecoderConfig read_glm4_moe_lite(const io::JsonReader& reader) {
  DecoderConfig c =
      read_decoder(reader, {.max_position_embeddings = 202752, .head_dim = 64, .norm_eps = 1e-5});
  set_latent_attention(reader, c, {.q_rank = 768, .plain_dim = 192, .value_dim = 256});
  set_v3_experts(reader, c,
                 {.num_experts = 64,
                  .experts_per_token = 4,
                  .expert_size = 1536,
                  .groups = 1,
                  .groups_per_token = 1,
                  .scale = 1.8,
                  .first_key = nullptr});
  const auto types = read_layer_types(reader, c, "mlp_layer_types");
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    const auto i = static_cast<size_t>(layer);
    const bool is_dense = types.empty() ? layer == 0 : types[i] == "dense";
    if (!types.empty() && types[i] != "dense" && types[i] != "sparse")
      throw unsupported(reader, "mlp_layer_types", "this type of layer is not implemented").got(types[i]);
    if (is_dense) c.decoder.blocks[i].sparse.reset();
  }
  return c;
}

}  // namespace tessera::models
