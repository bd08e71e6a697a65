// LFM2 (Liquid AI, arXiv 2511.23404): most layers are gated short convolutions (nn/gated_convolution.h).
#include <algorithm>
#include <functional>

#include "tessera/models/common/read_config.h"
#include "tessera/models/decoder/read_experts.h"
#include "tessera/models/decoder/read_rope.h"
#include "tessera/models/decoder/read_sizes.h"
#include "tessera/models/families/families.h"

namespace tessera::models {
namespace {

// Layers are of the type "conv" where `layer_types` says so, or else `is_convolution`.
DecoderConfig read_lfm2_layers(const io::JsonReader& reader, DecoderDefaults defaults,
                               const std::function<bool(int64_t layer)>& is_convolution) {
  defaults.max_position_embeddings = 128000;
  defaults.kv_heads = 8;
  defaults.norm_eps = 1e-5;
  defaults.is_tied = true;
  defaults.norm_eps_key = "norm_eps";
  defaults.activation_key = nullptr;
  defaults.pad_token = 0;
  DecoderConfig c = read_decoder(reader, defaults);
  // Older files have this key.
  c.tie_word_embeddings = reader.boolean("tie_embedding", c.tie_word_embeddings);
  const nn::GatedConvolutionOptions convolution{.hidden_size = c.hidden_size,
                                                .taps = reader.integer("conv_L_cache", 1, 1024, 3),
                                                .bias = reader.boolean("conv_bias", false)};
  check_products(reader, c, {{"hidden_size", 3 * c.hidden_size}});
  const std::vector<bool> has_convolution = read_other_layers(reader, c, "conv", is_convolution);
  for (size_t layer = 0; layer < has_convolution.size(); ++layer) {
    nn::TransformerBlockOptions& block = c.decoder.blocks[layer];
    block.attention_norm_name = "operator_norm";
    block.mlp_norm_name = "ffn_norm";
    block.mlp_name = "feed_forward";
    block.mlp.gate = "w1";
    block.mlp.up = "w3";
    block.mlp.down = "w2";
    block.attention.o = "out_proj";
    block.attention.qk_norm =
        nn::QkNormOptions{.norm = c.decoder.norm, .q = "q_layernorm", .k = "k_layernorm"};
    if (!has_convolution[layer]) continue;
    block.convolution = convolution;
    block.attention_name = "conv";
  }
  c.decoder.final_norm = "embedding_norm";
  set_rope(c, read_rope(reader, c, {.theta = 1e6}));
  return c;
}

// Returns the width of the MLPs, of which the configuration gives 3 / 2 at first.
int64_t adjusted_width(const io::JsonReader& reader, int64_t size) {
  if (!reader.boolean("block_auto_adjust_ff_dim", true)) return size;
  size = static_cast<int64_t>(static_cast<double>(2 * size) / 3.0);
  if (reader.is_null("block_ffn_dim_multiplier")) return size;
  const double factor = reader.number("block_ffn_dim_multiplier", 1e-6, 1e3, 1.0);
  const int64_t multiple = reader.integer("block_multiple_of", 1, kMaxSize, 256);
  size = static_cast<int64_t>(factor * static_cast<double>(size));
  return (size + multiple - 1) / multiple * multiple;
}

}  // namespace

DecoderConfig read_lfm2(const io::JsonReader& reader) {
  const bool has_list = reader.has("full_attn_idxs");
  const auto with_attention = reader.integers("full_attn_idxs", 0, kMaxLayers);
  const char* const width_key = reader.has("block_ff_dim") ? "block_ff_dim" : "intermediate_size";
  DecoderConfig c = read_lfm2_layers(
      reader, {.intermediate_key = width_key, .intermediate_size = 12288}, [&](int64_t layer) {
        return has_list && std::ranges::find(with_attention, layer) == with_attention.end();
      });
  c.intermediate_size = adjusted_width(reader, c.intermediate_size);
  if (c.intermediate_size == 0) throw reader.problem(width_key, "leaves no MLP");
  check_products(reader, c, {{width_key, c.intermediate_size}});
  for (auto& block : c.decoder.blocks) block.mlp.intermediate_size = c.intermediate_size;
  return c;
}

DecoderConfig read_lfm2_moe(const io::JsonReader& reader) {
  DecoderConfig c = read_lfm2_layers(reader, {.intermediate_size = 7168}, [](int64_t) { return false; });
  set_experts(reader, c,
              {.has_num_experts_key = true,
               .num_experts = 32,
               .experts_per_token = 4,
               .size_key = "moe_intermediate_size",
               .size = 1792,
               .has_norm_key = true,
               .normalises = true,
               .first_key = "num_dense_layers",
               .first_sparse = 2,
               .mlp_name = "feed_forward",
               .gate = "w1",
               .up = "w3",
               .down = "w2"});
  const bool has_bias = reader.boolean("use_expert_bias", true);
  const double scale = reader.number("routed_scaling_factor", 1e-9, 1e9, 1.0);
  for (auto& block : c.decoder.blocks) {
    if (!block.sparse) continue;
    nn::RouterOptions& router = block.sparse->router;
    router.is_sigmoid = true;
    router.has_correction = has_bias;
    router.sum_eps = 1e-6;
    router.scale = scale;
    block.sparse->correction = "expert_bias";
  }
  return c;
}

}  // namespace tessera::models
