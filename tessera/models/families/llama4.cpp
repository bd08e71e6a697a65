// The text part of Llama 4 (Meta, 2025): attention in chunks, layers without positions, and experts.
#include <algorithm>

#include "tessera/models/common/read_config.h"
#include "tessera/models/decoder/read_experts.h"
#include "tessera/models/decoder/read_rope.h"
#include "tessera/models/decoder/read_sizes.h"
#include "tessera/models/families/families.h"

namespace tessera::models {
namespace {

// Returns for each layer whether its queries and keys are rotated.
std::vector<bool> read_rotated(const io::JsonReader& reader, const DecoderConfig& c) {
  const int64_t interval = reader.integer("no_rope_layer_interval", 1, kMaxLayers, 4);
  const auto given = reader.integers("no_rope_layers", 0, 1);
  std::vector<bool> rotated;
  for (int64_t layer = 0; layer < c.num_layers; ++layer) rotated.push_back((layer + 1) % interval != 0);
  if (given.empty()) return rotated;
  if (std::ssize(given) < c.num_layers) {
    throw reader.problem("no_rope_layers", "must have a number for every layer")
        .got(std::to_string(given.size()) + " numbers")
        .need(std::to_string(c.num_layers));
  }
  for (size_t layer = 0; layer < rotated.size(); ++layer) rotated[layer] = given[layer] != 0;
  return rotated;
}

// The factors of the queries in layers without positions.
nn::RopeOptions read_temperature(const io::JsonReader& reader, const DecoderConfig& c) {
  nn::RopeOptions o{.head_dim = 2, .max_position_embeddings = c.max_position_embeddings};
  o.query_beta = reader.number("attn_scale", 0.0, 1e3, 0.1);
  o.query_length = reader.integer("floor_scale", 1, kMaxSize, 8192);
  o.query_offset = 1;
  o.rotates = false;
  return o;
}

void set_attention(const io::JsonReader& reader, DecoderConfig& c) {
  const std::vector<bool> rotated = read_rotated(reader, c);
  const std::vector<bool> chunked = read_other_layers(
      reader, c, "chunked_attention", [&](int64_t layer) { return rotated[static_cast<size_t>(layer)]; });
  const int64_t chunk =
      reader.is_null("attention_chunk_size") ? 0 : reader.integer("attention_chunk_size", 1, kMaxSize, 8192);
  const bool has_norms = reader.boolean("use_qk_norm", true),
             is_tuned = reader.boolean("attn_temperature_tuning", true);
  set_rope(c, read_rope(reader, c, {.theta = 5e5}));
  c.decoder.ropes.push_back(read_temperature(reader, c));
  for (size_t layer = 0; layer < rotated.size(); ++layer) {
    nn::AttentionOptions& attention = c.decoder.blocks[layer].attention;
    attention.is_interleaved = true;
    attention.rotary = rotated[layer] ? 0 : is_tuned ? 1 : -1;
    if (chunked[layer]) attention.chunk = chunk;
    if (!rotated[layer] || !has_norms) continue;
    attention.qk_norm =
        nn::QkNormOptions{.norm = {.eps = c.decoder.norm.eps, .has_scale = false}, .is_after_rotation = true};
  }
  if (chunk > 0 && chunk < c.max_position_embeddings) {
    c.generation_bound = {chunk, "generating beyond attention_chunk_size is not implemented"};
  }
}

void set_llama4_experts(const io::JsonReader& reader, DecoderConfig& c) {
  const ExpertKeys keys{.num_experts = 16,
                        .experts_per_token = 1,
                        .size = 8192,
                        .has_jitter_key = true,
                        .mlp_name = "feed_forward"};
  const int64_t step = reader.integer("interleave_moe_layer_step", 1, kMaxLayers, 1);
  const auto given = reader.integers("moe_layers", 0, kMaxLayers);
  set_experts(reader, c, keys, reader.integer(keys.size_key, 1, kMaxSize, keys.size));
  stack_experts(c, {.gate_up = "experts.gate_up_proj", .down = "experts.down_proj", .are_transposed = true});
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    nn::TransformerBlockOptions& block = c.decoder.blocks[static_cast<size_t>(layer)];
    const bool is_sparse =
        reader.has("moe_layers") ? std::ranges::find(given, layer) != given.end() : (layer + 1) % step == 0;
    if (!is_sparse) {
      block.sparse.reset();
      continue;
    }
    block.sparse->gate = "router";
    block.sparse->router = {.is_sigmoid = true, .normalises = false, .scales_inputs = true};
    block.sparse->has_shared_gate = false;
  }
}

}  // namespace

DecoderConfig read_llama4(const io::JsonReader& reader) {
  DecoderConfig c = read_decoder(reader, {.max_position_embeddings = 131072,
                                          .head_dim = 128,
                                          .kv_heads = 8,
                                          .norm_eps = 1e-5,
                                          .intermediate_key = "intermediate_size_mlp",
                                          .intermediate_size = 16384});
  const bool bias = reader.boolean("attention_bias", false);
  set_biases(c, bias, bias, false);
  for (auto& block : c.decoder.blocks) block.mlp_name = "feed_forward";
  set_attention(reader, c);
  set_llama4_experts(reader, c);
  return c;
}

}  // namespace tessera::models
