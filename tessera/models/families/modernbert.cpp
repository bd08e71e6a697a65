// ModernBERT (Warner et al., arXiv 2412.13663).
#include "tessera/models/common/read_config.h"
#include "tessera/models/decoder/read_rope.h"
#include "tessera/models/decoder/read_sizes.h"
#include "tessera/models/families/families.h"

namespace tessera::models {
namespace {

ClassifierDense::Activation read_classifier_activation(const io::JsonReader& reader) {
  const std::string name = reader.text("classifier_activation", "gelu");
  if (name == "gelu") return ClassifierDense::Activation::Gelu;
  if (name == "relu") return ClassifierDense::Activation::Relu;
  if (name == "tanh") return ClassifierDense::Activation::Tanh;
  throw unsupported(reader, "classifier_activation", "activation '" + name + "' is not implemented")
      .need("gelu, relu or tanh");
}

// Reads the names of the modules, the norm and the heads.
void read_modernbert_parts(const io::JsonReader& reader, EncoderConfig& c) {
  Encoder& e = c.encoder;
  e.norm = {.kind = nn::NormOptions::Kind::Layer,
            .eps = reader.number("norm_eps", 0.0, 1.0, 1e-5),
            .has_bias = reader.boolean("norm_bias", false)};
  e.body = "model";
  e.words = "embeddings.tok_embeddings";
  e.positions = e.types = "";
  e.embedding_norm = "embeddings.norm";
  e.layers = "layers";
  e.final_norm = "final_norm";
  e.dense = {
      .name = "head.dense",
      .activation = c.is_masked_lm ? ClassifierDense::Activation::Gelu : read_classifier_activation(reader),
      .has_bias = reader.boolean("classifier_bias", false),
      .norm = "head.norm"};
  if (c.is_masked_lm) {
    e.masked = {.dense = "head.dense",
                .norm = "head.norm",
                .activation = read_activation(reader, "classifier_activation", "gelu"),
                .has_dense_bias = e.dense.has_bias,
                .bias = reader.boolean("decoder_bias", true) ? "decoder" : "",
                .decoder = "decoder"};
  }
}

nn::TransformerBlockOptions read_modernbert_block(const io::JsonReader& reader, const EncoderConfig& c) {
  const bool has_bias = reader.boolean("attention_bias", false);
  nn::TransformerBlockOptions block;
  block.attention = {.hidden_size = c.hidden_size,
                     .num_heads = c.num_heads,
                     .num_kv_heads = c.num_kv_heads,
                     .head_dim = c.head_dim,
                     .qkv_bias = has_bias,
                     .output_bias = has_bias,
                     .is_causal = false,
                     .dropout = read_dropout(reader, "attention_dropout"),
                     .o = "Wo",
                     .qkv = "Wqkv"};
  block.mlp = {.hidden_size = c.hidden_size,
               .intermediate_size = c.intermediate_size,
               .bias = reader.boolean("mlp_bias", false),
               .activation = read_activation(reader, "hidden_activation", "gelu"),
               .gate = "gate",
               .down = "Wo",
               .gate_up = "Wi"};
  block.mlp_hidden_dropout = read_dropout(reader, "mlp_dropout");
  block.norm = c.encoder.norm;
  block.attention_name = "attn";
  block.attention_norm_name = "attn_norm";
  block.mlp_norm_name = "mlp_norm";
  return block;
}

}  // namespace

EncoderConfig read_modernbert(const io::JsonReader& reader) {
  EncoderConfig c;
  c.is_encoder = true;
  read_common(reader, c);
  read_sizes(reader, c, {.max_position_embeddings = 8192, .kv_heads_key = nullptr});
  read_masked_tie(reader, c);
  if (const std::string pooling = reader.text("classifier_pooling", "cls"); pooling != "cls") {
    throw unsupported(reader, "classifier_pooling", "a classifier that reads all tokens is not implemented")
        .got(pooling)
        .need("cls");
  }
  Encoder& e = c.encoder;
  e.embedding_dropout = read_dropout(reader, "embedding_dropout");
  e.classifier_dropout = read_dropout(reader, "classifier_dropout");
  read_modernbert_parts(reader, c);
  e.blocks.assign(static_cast<size_t>(c.num_layers), read_modernbert_block(reader, c));
  e.blocks.front().attention_norm_name = "";  // the norm of the embeddings is right before it
  const int64_t every = reader.integer("global_attn_every_n_layers", 1, kMaxLayers, 3);
  const auto slides = read_sliding_layers(reader, c, [&](int64_t layer) { return layer % every != 0; });
  // A token sees half of the window on each side, and itself.
  const int64_t window = reader.integer("local_attention", 2, kMaxSize, 128) / 2 + 1;
  e.ropes = {
      read_rope(reader, c,
                {.theta = 160000.0, .theta_key = "global_rope_theta", .layer_type = "full_attention"}),
      read_rope(reader, c,
                {.theta = 10000.0, .theta_key = "local_rope_theta", .layer_type = "sliding_attention"})};
  for (size_t layer = 0; layer < slides.size(); ++layer) {
    nn::AttentionOptions& attention = e.blocks[layer].attention;
    attention.rotary = slides[layer] ? 1 : 0;
    if (slides[layer]) attention.window = window;
  }
  c.document_bound = {c.max_position_embeddings, "max_position_embeddings in its config.json is the limit"};
  return c;
}

}  // namespace tessera::models
