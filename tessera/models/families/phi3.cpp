// Phi-3, 3.5 and 4 (Abdin et al., arXiv 2404.14219): Llama with joined projections, and longrope.
#include "tessera/models/common/read_config.h"
#include "tessera/models/decoder/read_rope.h"
#include "tessera/models/decoder/read_sizes.h"
#include "tessera/models/families/families.h"

namespace tessera::models {

DecoderConfig read_phi3(const io::JsonReader& reader) {
  DecoderConfig c =
      read_decoder(reader, {.max_position_embeddings = 4096, .norm_eps = 1e-5, .pad_token = 32000});
  const double residual = read_dropout(reader, "resid_pdrop");
  set_dropouts(c, residual);
  for (auto& block : c.decoder.blocks) {
    block.attention.qkv = "qkv_proj";
    block.mlp.gate_up = "gate_up_proj";
  }
  set_windows(reader, c, std::vector<bool>(c.decoder.blocks.size(), true), std::nullopt);
  set_rope(c, read_rope(reader, c, {.partial_key = "partial_rotary_factor", .original_length = 4096}));
  return c;
}

}  // namespace tessera::models
