// GLM-4 of both generations: rotations of neighbours in half of each head, and one projection for the gate
// and the rest of the MLP.
#include "tessera/models/decoder/read_rope.h"
#include "tessera/models/decoder/read_sizes.h"
#include "tessera/models/families/families.h"

namespace tessera::models {

DecoderConfig read_glm(const io::JsonReader& reader) {
  DecoderConfig c = read_decoder(reader, {.max_position_embeddings = 131072,
                                          .head_dim = 128,
                                          .kv_heads = 2,
                                          .norm_eps = 1.5625e-7,
                                          .pad_token = 151329});
  set_biases(c, reader.boolean("attention_bias", true), false, false);
  for (auto& block : c.decoder.blocks) {
    block.attention.is_interleaved = true;
    block.mlp.gate_up = "gate_up_proj";
  }
  set_rope(c, read_rope(reader, c, {.partial = 0.5, .partial_key = "partial_rotary_factor"}));
  return c;
}

DecoderConfig read_glm4(const io::JsonReader& reader) {
  DecoderConfig c = read_glm(reader);
  for (auto& block : c.decoder.blocks) {
    block.attention_out_norm_name = "post_self_attn_layernorm";
    block.mlp_out_norm_name = "post_mlp_layernorm";
  }
  return c;
}

}  // namespace tessera::models
