// T5 and its relatives: an encoder and a decoder with relative positions and scores that are not scaled.
#include <cmath>
#include <string>
#include <vector>

#include "tessera/models/common/read_config.h"
#include "tessera/models/decoder/read_sizes.h"
#include "tessera/models/families/families.h"

namespace tessera::models {
namespace {

// A model scales its logits where the file says so, or says that they are those of the embedding.
enum class LogitScale : uint8_t { AsTheFileSays, Never, Always };

// The differences between T5, mT5 and UMT5: the defaults of their configuration classes, and what they
// compute.
struct T5Kind {
  int64_t vocab_size = 32128, d_ff = 2048, num_layers = 6, num_heads = 8;
  const char* feed_forward_proj = "relu";
  LogitScale logit_scale = LogitScale::AsTheFileSays;
  bool has_bias_per_block = false;
};

// `feed_forward_proj` is the name of an activation, or "gated-" and the name.
nn::MLPOptions read_mlp(const io::JsonReader& reader, const ModelConfig& c, const char* fallback) {
  const char* const key = "feed_forward_proj";
  const std::string kind = reader.text(key, fallback), gated = "gated-";
  const bool is_gated = kind.starts_with(gated);
  const std::string name = is_gated ? kind.substr(gated.size()) : kind;
  nn::MLPOptions mlp{.hidden_size = c.hidden_size, .intermediate_size = c.intermediate_size};
  // The configuration class reads "gated-gelu" as the tanh form.
  mlp.activation =
      is_gated && name == "gelu" ? ops::Nonlinearity::GeluTanh : find_activation(reader, key, name);
  mlp.gate = is_gated ? "wi_0" : "";
  mlp.up = is_gated ? "wi_1" : "wi";
  mlp.down = "wo";
  return mlp;
}

nn::TransformerBlockOptions t5_block(const ModelConfig& c, const nn::MLPOptions& mlp,
                                     const nn::NormOptions& norm, bool is_decoder) {
  nn::TransformerBlockOptions block;
  block.tokens = is_decoder ? nn::TransformerBlockOptions::Tokens::Targets
                            : nn::TransformerBlockOptions::Tokens::Sources;
  block.attention = {.hidden_size = c.hidden_size,
                     .num_heads = c.num_heads,
                     .num_kv_heads = c.num_heads,
                     .head_dim = c.head_dim,
                     .rotary = -1,
                     .scale = 1.0,
                     .is_causal = is_decoder,
                     .q = "q",
                     .k = "k",
                     .v = "v",
                     .o = "o"};
  block.attention_name = "layer.0.SelfAttention";
  block.attention_norm_name = "layer.0.layer_norm";
  if (is_decoder) {
    block.cross_attention = nn::CrossAttentionOptions{
        .hidden_size = c.hidden_size, .num_heads = c.num_heads, .head_dim = c.head_dim};
    block.cross_attention_name = "layer.1.EncDecAttention";
    block.cross_norm_name = "layer.1.layer_norm";
  }
  const std::string last = is_decoder ? "layer.2." : "layer.1.";
  block.mlp = mlp;
  block.mlp_name = last + "DenseReluDense";
  block.mlp_norm_name = last + "layer_norm";
  block.norm = norm;
  return block;
}

void check_buckets(const io::JsonReader& reader, const nn::DistanceBuckets& buckets) {
  // The first quarter of the buckets (half, in the decoder) has one distance each.
  if (buckets.count % 2 == 0 && buckets.max_distance > buckets.count / 2) return;
  throw reader.problem("relative_attention_num_buckets", "the buckets do not fit the largest distance")
      .got(std::to_string(buckets.count) + " buckets up to the distance " +
           std::to_string(buckets.max_distance))
      .need("an even number, and relative_attention_max_distance above its half");
}

void read_t5_sizes(const io::JsonReader& reader, EncoderDecoderConfig& c, const T5Kind& kind) {
  c.vocab_size = reader.integer("vocab_size", 1, kMaxSize, kind.vocab_size);
  c.hidden_size = reader.integer("d_model", 1, kMaxSize, 512);
  c.head_dim = reader.integer("d_kv", 1, kMaxHeads, 64);
  c.intermediate_size = reader.integer("d_ff", 1, kMaxSize, kind.d_ff);
  c.num_heads = c.num_kv_heads = reader.integer("num_heads", 1, kMaxHeads, kind.num_heads);
  check_products(
      reader, c,
      {{"vocab_size", c.vocab_size}, {"d_ff", c.intermediate_size}, {"d_kv", c.num_heads * c.head_dim}});
  // Distances have no bound.
  c.max_position_embeddings = kMaxSize;
  c.initializer_range = reader.number("initializer_factor", 0.0, 1e3, 1.0);
}

// The start of the targets is the padding token, unless the file says otherwise.
void read_start(const io::JsonReader& reader, EncoderDecoderConfig& c) {
  if (!c.pad_token_id) c.pad_token_id = 0;
  if (c.eos_token_ids.empty()) c.eos_token_ids = {1};
  c.decoder_start_token_id = reader.integer("decoder_start_token_id", 0, c.vocab_size - 1, *c.pad_token_id);
}

EncoderDecoderConfig read_with(const io::JsonReader& reader, const T5Kind& kind) {
  EncoderDecoderConfig c;
  c.is_encoder_decoder = true;
  read_common(reader, c);
  if (reader.boolean("is_decoder", false) || !reader.boolean("is_encoder_decoder", true)) {
    throw unsupported(reader, "is_encoder_decoder", "a stack alone is not implemented")
        .need("an encoder and a decoder");
  }
  read_t5_sizes(reader, c, kind);
  read_start(reader, c);
  const double dropout = c.parts.dropout = read_dropout(reader, "dropout_rate", 0.1);
  const int64_t encoder_layers = reader.integer("num_layers", 1, kMaxLayers, kind.num_layers);
  const int64_t decoder_layers = reader.integer("num_decoder_layers", 1, kMaxLayers, encoder_layers);
  c.num_layers = encoder_layers + decoder_layers;
  const bool scales = reader.boolean("tie_word_embeddings", true);
  c.tie_word_embeddings = scales;
  EncoderDecoder& parts = c.parts;
  if (kind.logit_scale == LogitScale::Always ||
      (kind.logit_scale == LogitScale::AsTheFileSays && reader.boolean("scale_decoder_outputs", scales)))
    parts.logit_scale = 1.0 / std::sqrt(static_cast<double>(c.hidden_size));
  parts.norm.eps = reader.number("layer_norm_epsilon", 0.0, 1.0, 1e-6);
  nn::DistanceBuckets buckets{
      .count = reader.integer("relative_attention_num_buckets", 4, kMaxHeads, 32),
      .max_distance = reader.integer("relative_attention_max_distance", 1, kMaxSize, 128)};
  check_buckets(reader, buckets);
  const nn::MLPOptions mlp = read_mlp(reader, c, kind.feed_forward_proj);
  const auto make_stack = [&](const char* body, int64_t layers, bool is_decoder) {
    buckets.is_bidirectional = !is_decoder;
    nn::TransformerBlockOptions block = t5_block(c, mlp, parts.norm, is_decoder);
    block.attention.dropout = block.mixer_dropout = block.mlp_dropout = block.mlp_hidden_dropout = dropout;
    if (block.cross_attention) block.cross_attention->dropout = dropout;
    return Stack{std::vector(static_cast<size_t>(layers), block), buckets, body, kind.has_bias_per_block};
  };
  parts.encoder = make_stack("encoder", encoder_layers, false);
  parts.decoder = make_stack("decoder", decoder_layers, true);
  return c;
}

// Returns the sizes that mT5 and UMT5 share.
T5Kind multilingual() {
  return {
      .vocab_size = 250112, .d_ff = 1024, .num_layers = 8, .num_heads = 6, .feed_forward_proj = "gated-gelu"};
}

}  // namespace

// T5 (Raffel et al., arXiv 1910.10683), its version 1.1, and Flan-T5.
EncoderDecoderConfig read_t5(const io::JsonReader& reader) { return read_with(reader, {}); }

// mT5 (Xue et al., arXiv 2010.11934).
EncoderDecoderConfig read_mt5(const io::JsonReader& reader) {
  T5Kind kind = multilingual();
  kind.logit_scale = LogitScale::Never;
  return read_with(reader, kind);
}

// UMT5 (Chung et al., arXiv 2304.09151). Transformers 5 scales its logits, whatever the file says.
EncoderDecoderConfig read_umt5(const io::JsonReader& reader) {
  T5Kind kind = multilingual();
  kind.logit_scale = LogitScale::Always;
  kind.has_bias_per_block = true;
  return read_with(reader, kind);
}

}  // namespace tessera::models
