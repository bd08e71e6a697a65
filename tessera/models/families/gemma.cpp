// Gemma 1, 2 and 3 (Gemma Team, arXiv 2403.08295, 2408.00118, 2503.19786).
#include <cmath>

#include "tessera/models/common/read_config.h"
#include "tessera/models/decoder/read_rope.h"
#include "tessera/models/decoder/read_sizes.h"
#include "tessera/models/families/families.h"

namespace tessera::models {
namespace {

// All three have norms with 1 + weight, scaled embeddings and a gated GELU.
DecoderConfig read_common_gemma(const io::JsonReader& reader, DecoderDefaults defaults) {
  defaults.pad_token = 0;
  DecoderConfig c = read_decoder(reader, defaults);
  c.decoder.norm.adds_one = true;
  c.decoder.embedding_scale = std::sqrt(static_cast<double>(c.hidden_size));
  c.decoder.rounds_embedding_scale = true;
  const bool bias = reader.boolean("attention_bias", false);
  set_biases(c, bias, bias, false);
  for (auto& block : c.decoder.blocks) block.norm = c.decoder.norm;
  if (!reader.is_empty("use_bidirectional_attention")) {
    throw unsupported(reader, "use_bidirectional_attention",
                      "bidirectional attention is not implemented here");
  }
  return c;
}

// Gemma 2 and 3: norms around both branches, and a scale of the scores that a key gives.
DecoderConfig read_later_gemma(const io::JsonReader& reader, int64_t max_position_embeddings) {
  DecoderConfig c = read_common_gemma(reader, {.max_position_embeddings = max_position_embeddings,
                                               .head_dim = 256,
                                               .kv_heads = 4,
                                               .is_tied = true,
                                               .activation_key = "hidden_activation",
                                               .activation = "gelu_pytorch_tanh"});
  const double scale = 1.0 / std::sqrt(reader.number("query_pre_attn_scalar", 1e-6, 1e6, 256.0));
  for (auto& block : c.decoder.blocks) {
    block.attention_out_norm_name = "post_attention_layernorm";
    block.mlp_norm_name = "pre_feedforward_layernorm";
    block.mlp_out_norm_name = "post_feedforward_layernorm";
    block.attention.scale = scale;
  }
  return c;
}

}  // namespace

DecoderConfig read_gemma(const io::JsonReader& reader) {
  DecoderConfig c = read_common_gemma(
      reader,
      {.max_position_embeddings = 8192, .head_dim = 256, .is_tied = true, .activation = "gelu_pytorch_tanh"});
  // The first files say "gelu" and mean its tanh form.
  for (auto& block : c.decoder.blocks) {
    if (block.mlp.activation == ops::Nonlinearity::Gelu) block.mlp.activation = ops::Nonlinearity::GeluTanh;
  }
  set_rope(c, read_rope(reader, c));
  return c;
}

DecoderConfig read_gemma2(const io::JsonReader& reader) {
  DecoderConfig c = read_later_gemma(reader, 8192);
  const auto cap = [&](const char* key, double fallback) {
    return reader.is_null(key) ? 0.0 : reader.number(key, 0.0, 1e6, fallback);
  };
  c.decoder.logit_soft_cap = cap("final_logit_softcapping", 30.0);
  for (auto& block : c.decoder.blocks) block.attention.soft_cap = cap("attn_logit_softcapping", 50.0);
  set_windows(reader, c, read_sliding_layers(reader, c, [](int64_t layer) { return layer % 2 == 0; }), 4096);
  set_rope(c, read_rope(reader, c));
  return c;
}

DecoderConfig read_gemma3(const io::JsonReader& reader) {
  DecoderConfig c = read_later_gemma(reader, 131072);
  // Transformers reads this key, too, but does not apply it.
  reader.number("attn_logit_softcapping", 0.0, 1e6, 0.0);
  c.decoder.logit_soft_cap = reader.number("final_logit_softcapping", 0.0, 1e6, 0.0);
  const int64_t pattern = reader.integer("sliding_window_pattern", 1, kMaxLayers, 6);
  const auto slides =
      read_sliding_layers(reader, c, [&](int64_t layer) { return (layer + 1) % pattern != 0; });
  set_windows(reader, c, slides, 4096);
  // Layers with a window have their own positions.
  set_rope(c, read_rope(reader, c, {.theta = 1e6, .layer_type = "full_attention"}));
  c.decoder.ropes.push_back(read_rope(reader, c,
                                      {.theta = 10000.0,
                                       .theta_key = "rope_local_base_freq",
                                       .layer_type = "sliding_attention",
                                       .is_unscaled = true}));
  for (size_t layer = 0; layer < slides.size(); ++layer) {
    nn::AttentionOptions& attention = c.decoder.blocks[layer].attention;
    attention.rotary = slides[layer] ? 1 : 0;
    attention.qk_norm = nn::QkNormOptions{.norm = c.decoder.norm};
  }
  return c;
}

}  // namespace tessera::models
