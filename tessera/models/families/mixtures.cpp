// Mixtures of experts: gpt-oss (OpenAI, arXiv 2508.10925), Granite of experts, Qwen2-MoE (Yang et al., arXiv
// 2407.10671, section 2.2.2) with an expert that all tokens share, and OLMoE (Muennighoff et al., arXiv
// 2409.02060).
#include "tessera/models/common/read_config.h"
#include "tessera/models/decoder/read_experts.h"
#include "tessera/models/decoder/read_rope.h"
#include "tessera/models/decoder/read_sizes.h"
#include "tessera/models/families/families.h"

namespace tessera::models {
namespace {

// The positions of a file that does not describe them.
nn::RopeOptions gpt_oss_rope(const io::JsonReader& reader, const DecoderConfig& c) {
  constexpr double kTheta = 150000.0;
  nn::RopeOptions rope = read_rope(reader, c, {.theta = kTheta});
  if (rope_section(reader)) return rope;
  rope.type = nn::RopeType::Yarn;
  rope.factor = 32.0;
  rope.beta_fast = 32.0;
  rope.beta_slow = 1.0;
  rope.truncate = false;
  rope.original_max_position_embeddings = 4096;
  rope.attention_factor = nn::yarn_attention_factor(rope.factor, 0.0, 0.0);
  return rope;
}

}  // namespace

DecoderConfig read_gpt_oss(const io::JsonReader& reader) {
  DecoderConfig c = read_decoder(
      reader, {.max_position_embeddings = 131072, .head_dim = 64, .kv_heads = 8, .norm_eps = 1e-5});
  const bool bias = reader.boolean("attention_bias", true);
  set_biases(c, bias, bias, true);
  for (auto& block : c.decoder.blocks) block.attention.has_sinks = true;
  set_windows(reader, c, read_sliding_layers(reader, c, [](int64_t layer) { return layer % 2 == 0; }), 128);
  set_rope(c, gpt_oss_rope(reader, c));
  set_experts(reader, c, {.num_experts = 128, .experts_per_token = 4});
  stack_experts(c, {.gate_up = "experts.gate_up_proj",
                    .down = "experts.down_proj",
                    .gate_up_bias = "experts.gate_up_proj_bias",
                    .down_bias = "experts.down_proj_bias",
                    .are_transposed = true});
  for (auto& block : c.decoder.blocks) {
    block.sparse->gate = "router";
    block.sparse->gate_bias = true;
    nn::MLPOptions& expert = block.sparse->expert;
    expert.bias = true;
    expert.is_stored_in_turns = true;
    expert.activation = ops::Nonlinearity::Silu;
    expert.clamp = {.slope = reader.number("swiglu_alpha", 1e-6, 1e6, 1.702),
                    .limit = reader.number("swiglu_limit", 1e-6, 1e9, 7.0)};
  }
  return c;
}

DecoderConfig read_granite_moe(const io::JsonReader& reader) {
  DecoderConfig c = read_granite(reader);
  set_experts(reader, c, {.num_experts = 8, .experts_per_token = 2, .mlp_name = "block_sparse_moe"});
  stack_experts(c, {.gate_up = "input_linear.weight", .down = "output_linear.weight"});
  for (auto& block : c.decoder.blocks) block.sparse->gate = "router.layer";
  return c;
}

DecoderConfig read_olmoe(const io::JsonReader& reader) {
  DecoderConfig c = read_decoder(reader, {.max_position_embeddings = 4096, .norm_eps = 1e-5, .pad_token = 1});
  const bool bias = reader.boolean("attention_bias", false);
  set_biases(c, bias, bias, false);
  for (auto& block : c.decoder.blocks) {
    block.attention.qk_norm =
        nn::QkNormOptions{.norm = c.decoder.norm, .over = nn::QkNormOptions::Over::Projection};
  }
  set_rope(c, read_rope(reader, c));
  set_experts(reader, c,
              {.has_num_experts_key = true,
               .num_experts = 64,
               .experts_per_token = 8,
               .size = 2048,
               .has_norm_key = true,
               .aux_loss_coef = 0.01});
  return c;
}

DecoderConfig read_qwen2_moe(const io::JsonReader& reader) {
  DecoderConfig c = read_decoder(reader, {.max_position_embeddings = 32768, .kv_heads = 16});
  set_biases(c, reader.boolean("qkv_bias", true), false, false);
  // Every second layer below max_window_layers has the window, unless layer_types says otherwise.
  const bool has_windows = reader.boolean("use_sliding_window", false);
  const int64_t end = reader.integer("max_window_layers", 0, kMaxSize, 28);
  const auto slides = read_sliding_layers(
      reader, c, [&](int64_t layer) { return has_windows && (layer + 1) % 2 != 0 && layer < end; });
  if (has_windows) set_windows(reader, c, slides, 4096);
  set_rope(c, read_rope(reader, c));
  set_shared_experts(reader, c,
                     {.has_num_experts_key = true,
                      .num_experts = 60,
                      .experts_per_token = 4,
                      .size_key = "moe_intermediate_size",
                      .size = 1408,
                      .has_norm_key = true,
                      .has_layer_keys = true},
                     5632);
  return c;
}

}  // namespace tessera::models
