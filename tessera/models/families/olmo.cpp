// OLMo 1, 2 and 3 (Groeneveld et al., arXiv 2402.00838; OLMo Team, arXiv 2501.00656), and EXAONE 4 (LG AI
// Research, arXiv 2507.11407), whose norms stand where those of OLMo 2 do.
#include "tessera/models/common/read_config.h"
#include "tessera/models/decoder/read_rope.h"
#include "tessera/models/decoder/read_sizes.h"
#include "tessera/models/families/families.h"

namespace tessera::models {
namespace {

// Leaves the norms behind the branches alone.
void norm_results_only(DecoderConfig& c) {
  for (auto& block : c.decoder.blocks) {
    block.attention_norm_name = block.mlp_norm_name = "";
    block.attention_out_norm_name = "post_attention_layernorm";
    block.mlp_out_norm_name = "post_feedforward_layernorm";
  }
}

DecoderConfig read_olmo_sizes(const io::JsonReader& reader) {
  DecoderConfig c = read_decoder(reader, {.norm_eps = 1e-5, .pad_token = 1});
  const bool bias = reader.boolean("attention_bias", false);
  set_biases(c, bias, bias, false);
  return c;
}

DecoderConfig read_later_olmo(const io::JsonReader& reader) {
  DecoderConfig c = read_olmo_sizes(reader);
  norm_results_only(c);
  for (auto& block : c.decoder.blocks) {
    block.attention.qk_norm =
        nn::QkNormOptions{.norm = c.decoder.norm, .over = nn::QkNormOptions::Over::Projection};
  }
  return c;
}

}  // namespace

DecoderConfig read_olmo(const io::JsonReader& reader) {
  DecoderConfig c = read_olmo_sizes(reader);
  c.decoder.norm = {.kind = nn::NormOptions::Kind::Layer, .eps = 1e-5, .has_bias = false, .has_scale = false};
  for (auto& block : c.decoder.blocks) {
    block.norm = c.decoder.norm;
    block.attention.clip = reader.number("clip_qkv", 1e-6, 1e6, 0.0);
  }
  set_rope(c, read_rope(reader, c));
  return c;
}

DecoderConfig read_olmo2(const io::JsonReader& reader) {
  DecoderConfig c = read_later_olmo(reader);
  set_rope(c, read_rope(reader, c));
  return c;
}

DecoderConfig read_olmo3(const io::JsonReader& reader) {
  DecoderConfig c = read_later_olmo(reader);
  const auto slides = read_sliding_layers(reader, c, [](int64_t layer) { return (layer + 1) % 4 != 0; });
  set_windows(reader, c, slides, 4096);
  set_rope(c, read_rope(reader, c, {.theta = 5e5, .layer_type = "full_attention"}));
  // The keys of the model that are for all layers reach only those without a window.
  c.decoder.ropes.push_back(read_rope(
      reader, c,
      {.theta = 5e5, .theta_key = nullptr, .layer_type = "sliding_attention", .is_unscaled = true}));
  for (size_t layer = 0; layer < slides.size(); ++layer) {
    c.decoder.blocks[layer].attention.rotary = slides[layer] ? 1 : 0;
  }
  return c;
}

DecoderConfig read_exaone4(const io::JsonReader& reader) {
  DecoderConfig c = read_decoder(reader, {.norm_eps = 1e-5});
  norm_results_only(c);
  const bool has_windows = !reader.is_null("sliding_window");
  if (reader.is_text("sliding_window_pattern") && reader.texts("layer_types").empty()) {
    throw unsupported(reader, "sliding_window_pattern",
                      "a pattern of letters is read only beside layer_types");
  }
  const int64_t pattern = reader.is_text("sliding_window_pattern")
                              ? 1
                              : reader.integer("sliding_window_pattern", 1, kMaxLayers, 4);
  const auto slides = read_sliding_layers(
      reader, c, [&](int64_t layer) { return has_windows && (layer + 1) % pattern != 0; });
  set_windows(reader, c, slides, 4096);
  set_rope(c, read_rope(reader, c));
  for (size_t layer = 0; layer < slides.size(); ++layer) {
    nn::AttentionOptions& attention = c.decoder.blocks[layer].attention;
    attention.qk_norm = nn::QkNormOptions{.norm = c.decoder.norm};
    if (has_windows && !slides[layer]) attention.rotary = -1;
  }
  return c;
}

}  // namespace tessera::models
