// Qwen3-Next and Qwen3.5 (Qwen team, Alibaba): most layers are gated delta nets (nn/gated_delta_net.h), and
// every fourth one has attention with gated outputs.
#include "tessera/models/common/read_config.h"
#include "tessera/models/decoder/read_experts.h"
#include "tessera/models/decoder/read_rope.h"
#include "tessera/models/decoder/read_sizes.h"
#include "tessera/models/families/families.h"

namespace tessera::models {
namespace {

nn::GatedDeltaNetOptions read_delta_net(const io::JsonReader& reader, const DecoderConfig& c) {
  const auto heads = [&](const char* key, int64_t fallback) {
    return reader.integer(key, 1, kMaxHeads, fallback);
  };
  const nn::GatedDeltaNetOptions o{.hidden_size = c.hidden_size,
                                   .num_key_heads = heads("linear_num_key_heads", 16),
                                   .num_value_heads = heads("linear_num_value_heads", 32),
                                   .key_dim = heads("linear_key_head_dim", 128),
                                   .value_dim = heads("linear_value_head_dim", 128),
                                   .taps = reader.integer("linear_conv_kernel_dim", 1, 1024, 4),
                                   .norm_eps = c.decoder.norm.eps};
  if (o.num_value_heads % o.num_key_heads != 0) {
    throw reader.problem("linear_num_value_heads", "must be a multiple of linear_num_key_heads")
        .got(std::to_string(o.num_value_heads))
        .need("a multiple of " + std::to_string(o.num_key_heads));
  }
  check_products(reader, c,
                 {{"linear_key_head_dim", 2 * o.num_key_heads * o.key_dim},
                  {"linear_value_head_dim", 2 * o.num_value_heads * o.value_dim}});
  return o;
}

// Refuses what the key may say elsewhere, and not here.
void refuse_unless(const io::JsonReader& reader, const char* key, const std::string& only) {
  const std::string value = reader.text(key, only);
  if (value != only) throw unsupported(reader, key, "this is not implemented").got(value).need(only);
}

DecoderConfig read_hybrid(const io::JsonReader& reader, DecoderDefaults defaults, bool is_joined) {
  defaults.max_position_embeddings = 32768;
  defaults.head_dim = 256;
  DecoderConfig c = read_decoder(reader, defaults);
  c.decoder.norm.adds_one = true;
  c.decoder.unread_module = "mtp";  // predicts the tokens after the next
  const bool bias = reader.boolean("attention_bias", false);
  set_biases(c, bias, bias, false);
  refuse_unless(reader, "hidden_act", "silu");
  refuse_unless(reader, "mamba_ssm_dtype", "float32");
  if (!reader.boolean("attn_output_gate", true)) {
    throw unsupported(reader, "attn_output_gate", "attention without gated outputs is not implemented")
        .need("true");
  }
  nn::GatedDeltaNetOptions delta_net = read_delta_net(reader, c);
  delta_net.is_joined = is_joined;
  const int64_t interval = reader.integer("full_attention_interval", 1, kMaxLayers, 4);
  const std::vector<bool> has_delta_net = read_other_layers(
      reader, c, "linear_attention", [&](int64_t layer) { return (layer + 1) % interval != 0; });
  for (size_t layer = 0; layer < has_delta_net.size(); ++layer) {
    nn::TransformerBlockOptions& block = c.decoder.blocks[layer];
    block.norm = c.decoder.norm;
    block.attention.has_output_gate = true;
    block.attention.qk_norm = nn::QkNormOptions{.norm = c.decoder.norm};
    if (!has_delta_net[layer]) continue;
    block.delta_net = delta_net;
    block.attention_name = "linear_attn";
  }
  // The sections of positions in images (mrope_section) are all the same for text.
  set_rope(c, read_rope(reader, c, {.partial = 0.25, .partial_key = "partial_rotary_factor"}));
  return c;
}

}  // namespace

DecoderConfig read_qwen3_next(const io::JsonReader& reader) {
  DecoderConfig c = read_hybrid(reader, {.kv_heads = 2, .intermediate_size = 5632}, /*is_joined=*/true);
  set_shared_experts(reader, c,
                     {.has_num_experts_key = true,
                      .num_experts = 512,
                      .experts_per_token = 10,
                      .size_key = "moe_intermediate_size",
                      .size = 512,
                      .has_norm_key = true,
                      .normalises = true,
                      .has_layer_keys = true},
                     512);
  return c;
}

DecoderConfig read_qwen3_5(const io::JsonReader& reader) {
  return read_hybrid(reader, {.kv_heads = 4, .intermediate_size = 12288}, /*is_joined=*/false);
}

DecoderConfig read_qwen3_5_moe(const io::JsonReader& reader) {
  // All layers have experts.
  DecoderConfig c = read_hybrid(
      reader, {.kv_heads = 2, .intermediate_key = "moe_intermediate_size", .intermediate_size = 512},
      /*is_joined=*/false);
  set_shared_experts(reader, c,
                     {.has_num_experts_key = true,
                      .num_experts = 256,
                      .experts_per_token = 8,
                      .size_key = "moe_intermediate_size",
                      .size = 512},
                     512);
  return c;
}

}  // namespace tessera::models
