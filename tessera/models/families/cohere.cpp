// Command R and R7B of Cohere: LayerNorms without biases, blocks whose branches are parallel, and rotations
// of neighbours.
#include "tessera/models/common/read_config.h"
#include "tessera/models/decoder/read_rope.h"
#include "tessera/models/decoder/read_sizes.h"
#include "tessera/models/families/families.h"

namespace tessera::models {
namespace {

DecoderConfig read_both(const io::JsonReader& reader, double theta) {
  DecoderConfig c = read_decoder(reader, {.max_position_embeddings = 8192,
                                          .norm_eps = 1e-5,
                                          .is_tied = true,
                                          .norm_eps_key = "layer_norm_eps",
                                          .pad_token = 0});
  c.decoder.norm.kind = nn::NormOptions::Kind::Layer;
  c.decoder.norm.has_bias = false;
  c.decoder.logit_scale = reader.number("logit_scale", 1e-9, 1e9, 0.0625);
  const bool bias = reader.boolean("attention_bias", false);
  set_biases(c, bias, bias, false);
  for (auto& block : c.decoder.blocks) {
    block.norm = c.decoder.norm;
    block.is_parallel = true;
    block.mlp_norm_name = "";
    block.attention.is_interleaved = true;
  }
  set_rope(c, read_rope(reader, c, {.theta = theta}));
  return c;
}

}  // namespace

DecoderConfig read_cohere(const io::JsonReader& reader) {
  DecoderConfig c = read_both(reader, 5e5);
  if (!reader.boolean("use_qk_norm", false)) return c;
  for (auto& block : c.decoder.blocks) {
    block.attention.qk_norm =
        nn::QkNormOptions{.norm = c.decoder.norm, .over = nn::QkNormOptions::Over::EachHead};
  }
  return c;
}

DecoderConfig read_cohere2(const io::JsonReader& reader) {
  DecoderConfig c = read_both(reader, 10000.0);
  const int64_t pattern = reader.integer("sliding_window_pattern", 1, kMaxLayers, 4);
  const auto slides =
      read_sliding_layers(reader, c, [&](int64_t layer) { return (layer + 1) % pattern != 0; });
  set_windows(reader, c, slides, 4096);
  // Layers that see all tokens have no positions.
  for (size_t layer = 0; layer < slides.size(); ++layer) {
    if (!slides[layer]) c.decoder.blocks[layer].attention.rotary = -1;
  }
  return c;
}

}  // namespace tessera::models
