// Families that differ from Llama in one or two places.
#include <algorithm>
#include <cmath>

#include "tessera/models/common/read_config.h"
#include "tessera/models/decoder/read_rope.h"
#include "tessera/models/decoder/read_sizes.h"
#include "tessera/models/families/families.h"

namespace tessera::models {
namespace {

// Reads the biases that two keys give to all projections.
void read_biases(const io::JsonReader& reader, DecoderConfig& c) {
  const bool attention = reader.boolean("attention_bias", false);
  set_biases(c, attention, attention, reader.boolean("mlp_bias", false));
}

void drop_gates(DecoderConfig& c) {
  for (auto& block : c.decoder.blocks) block.mlp.gate = "";
}

}  // namespace

// Apertus of the Swiss AI Initiative (arXiv 2509.14233): an activation with parameters, and no gate.
DecoderConfig read_apertus(const io::JsonReader& reader) {
  DecoderConfig c = read_decoder(
      reader,
      {.max_position_embeddings = 65536, .norm_eps = 1e-5, .activation_key = nullptr, .pad_token = 3});
  const bool bias = reader.boolean("attention_bias", false);
  set_biases(c, bias, bias, false);
  drop_gates(c);
  const bool has_xielu = reader.text("hidden_act", "xielu") == "xielu";
  for (auto& block : c.decoder.blocks) {
    block.mlp.has_xielu = has_xielu;
    if (!has_xielu) block.mlp.activation = read_activation(reader, "hidden_act", "xielu");
    block.attention.qk_norm = nn::QkNormOptions{.norm = c.decoder.norm};
    block.attention_norm_name = "attention_layernorm";
    block.mlp_norm_name = "feedforward_layernorm";
  }
  nn::RopeOptions rope = read_rope(reader, c, {.theta = 12e6});
  if (!rope_section(reader)) {
    rope.type = nn::RopeType::Llama3;
    rope.factor = 8.0;
    rope.original_max_position_embeddings = 8192;
  }
  set_rope(c, rope);
  return c;
}

// AFM-4.5B of Arcee AI: an MLP of relu^2 without a gate.
DecoderConfig read_arcee(const io::JsonReader& reader) {
  DecoderConfig c =
      read_decoder(reader, {.max_position_embeddings = 4096, .norm_eps = 1e-5, .activation = "relu2"});
  read_biases(reader, c);
  drop_gates(c);
  set_rope(c, read_rope(reader, c));
  return c;
}

// Granite 3 of IBM: factors on embeddings, scores, branches and logits.
DecoderConfig read_granite(const io::JsonReader& reader) {
  DecoderConfig c = read_decoder(reader, {});
  read_biases(reader, c);
  const auto factor = [&](const char* key) { return reader.number(key, 1e-9, 1e9, 1.0); };
  c.decoder.embedding_scale = factor("embedding_multiplier");
  c.decoder.logit_scale = 1.0 / factor("logits_scaling");
  for (auto& block : c.decoder.blocks) {
    block.attention.scale = factor("attention_multiplier");
    block.branch_scale = factor("residual_multiplier");
  }
  set_rope(c, read_rope(reader, c));
  return c;
}

// Helium of Kyutai: rotations of neighbours.
DecoderConfig read_helium(const io::JsonReader& reader) {
  DecoderConfig c = read_decoder(
      reader, {.max_position_embeddings = 4096, .head_dim = 128, .norm_eps = 1e-8, .pad_token = 3});
  set_biases(c, reader.boolean("attention_bias", false), false, reader.boolean("mlp_bias", false));
  for (auto& block : c.decoder.blocks) block.attention.is_interleaved = true;
  set_rope(c, read_rope(reader, c, {.theta = 1e5}));
  return c;
}

// Hunyuan of Tencent: norms of queries and keys behind the rotation.
DecoderConfig read_hunyuan(const io::JsonReader& reader) {
  DecoderConfig c = read_decoder(reader, {.norm_eps = 1e-5, .pad_token = 0});
  const bool bias = reader.boolean("attention_bias", false);
  set_biases(c, bias, bias, false);
  for (auto& block : c.decoder.blocks) {
    block.attention.qk_norm = nn::QkNormOptions{
        .norm = c.decoder.norm, .is_after_rotation = true, .q = "query_layernorm", .k = "key_layernorm"};
  }
  nn::RopeOptions rope = read_rope(reader, c);
  const auto section = rope_section(reader);
  const double alpha = section ? section->number("alpha", 0.0, 1e9, 0.0) : 0.0;
  // Dynamic NTK scaling whose stretch is given: the same for all lengths.
  if (rope.type == nn::RopeType::Dynamic && alpha > 0.0) {
    const double dim = static_cast<double>(rope.head_dim);
    rope.type = nn::RopeType::Default;
    rope.theta *= std::pow(alpha, dim / (dim - 2.0));
  }
  set_rope(c, rope);
  return c;
}

// Ministral of Mistral AI: windows on some layers.
DecoderConfig read_ministral(const io::JsonReader& reader) {
  DecoderConfig c = read_decoder(reader, {.max_position_embeddings = 131072, .kv_heads = 8});
  const bool has_windows = !reader.is_null("sliding_window");
  set_windows(reader, c, read_sliding_layers(reader, c, [&](int64_t) { return has_windows; }), 4096);
  set_rope(c, read_rope(reader, c));
  return c;
}

// Ministral 3 of Mistral AI: yarn, and queries that grow with their positions.
DecoderConfig read_ministral3(const io::JsonReader& reader) {
  DecoderConfig c = read_decoder(
      reader,
      {.max_position_embeddings = 262144, .head_dim = 128, .kv_heads = 8, .norm_eps = 1e-5, .pad_token = 11});
  set_windows(reader, c, std::vector<bool>(c.decoder.blocks.size(), true), std::nullopt);
  set_rope(c, read_mistral_rope(reader, c, {.theta = 1e6, .factor = 16.0, .original_length = 16384}));
  return c;
}

// Seed-OSS of ByteDance: biases of q, k and v.
DecoderConfig read_seed_oss(const io::JsonReader& reader) {
  DecoderConfig c = read_decoder(
      reader, {.max_position_embeddings = 524288, .head_dim = 128, .kv_heads = 8, .pad_token = 1});
  set_attention_dropout(c, read_dropout(reader, "attention_dropout", 0.1));
  const double residual = read_dropout(reader, "residual_dropout", 0.1);
  set_dropouts(c, residual);
  set_biases(c, reader.boolean("attention_bias", true), reader.boolean("attention_out_bias", false),
             reader.boolean("mlp_bias", false));
  set_rope(c, read_rope(reader, c));
  return c;
}

// SmolLM3 of Hugging Face: some layers have no positions.
DecoderConfig read_smollm3(const io::JsonReader& reader) {
  DecoderConfig c = read_decoder(
      reader, {.max_position_embeddings = 32768, .kv_heads = 4, .is_tied = true, .pad_token = 128004});
  read_biases(reader, c);
  set_rope(c, read_rope(reader, c, {.theta = 2e6}));
  const int64_t interval = reader.integer("no_rope_layer_interval", 1, kMaxLayers, 4);
  auto rotated = reader.integers("no_rope_layers", 0, 1);
  if (rotated.empty()) {
    for (int64_t layer = 0; layer < c.num_layers; ++layer) rotated.push_back((layer + 1) % interval != 0);
  }
  if (std::ssize(rotated) != c.num_layers) {
    throw reader.problem("no_rope_layers", "must have a number for every layer")
        .got(std::to_string(rotated.size()) + " numbers")
        .need(std::to_string(c.num_layers));
  }
  for (size_t layer = 0; layer < rotated.size(); ++layer) {
    if (rotated[layer] == 0) c.decoder.blocks[layer].attention.rotary = -1;
  }
  const bool has_windows = reader.boolean("use_sliding_window", false) && reader.has("sliding_window");
  const auto slides = read_sliding_layers(
      reader, c, [&](int64_t layer) { return has_windows && rotated[static_cast<size_t>(layer)] == 0; });
  if (has_windows) set_windows(reader, c, slides, std::nullopt);
  return c;
}

}  // namespace tessera::models
