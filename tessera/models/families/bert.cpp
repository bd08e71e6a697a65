// BERT and its relatives: learned positions, and norms over the residual sums.
#include "tessera/models/common/read_config.h"
#include "tessera/models/decoder/read_sizes.h"
#include "tessera/models/families/families.h"

namespace tessera::models {
namespace {

nn::TransformerBlockOptions encoder_block(const EncoderConfig& c, ops::Nonlinearity activation) {
  nn::TransformerBlockOptions block;
  block.attention = {.hidden_size = c.hidden_size,
                     .num_heads = c.num_heads,
                     .num_kv_heads = c.num_kv_heads,
                     .head_dim = c.head_dim,
                     .qkv_bias = true,
                     .output_bias = true,
                     .rotary = -1,
                     .is_causal = false};
  block.mlp = {.hidden_size = c.hidden_size,
               .intermediate_size = c.intermediate_size,
               .bias = true,
               .activation = activation,
               .gate = ""};
  block.norm = c.encoder.norm;
  block.norms_sums = true;
  return block;
}

// Reads what BERT and RoBERTa have in common.
EncoderConfig read_bert_like(const io::JsonReader& reader, const char* body) {
  EncoderConfig c;
  c.is_encoder = true;
  read_common(reader, c);
  if (reader.boolean("is_decoder", false) || reader.boolean("add_cross_attention", false))
    throw unsupported(reader, "is_decoder", "the model as a decoder is not implemented").need("false");
  if (const std::string kind = reader.text("position_embedding_type", "absolute"); kind != "absolute") {
    throw unsupported(reader, "position_embedding_type", "positions '" + kind + "' are not implemented")
        .need("absolute");
  }
  read_sizes(reader, c, {.max_position_embeddings = 512, .kv_heads_key = nullptr});
  read_masked_tie(reader, c);
  Encoder& e = c.encoder;
  e.embedding_dropout = read_dropout(reader, "hidden_dropout_prob", 0.1);
  e.classifier_dropout = read_dropout(reader, "classifier_dropout", e.embedding_dropout);
  e.norm = {.kind = nn::NormOptions::Kind::Layer, .eps = reader.number("layer_norm_eps", 0.0, 1.0, 1e-12)};
  e.num_types = reader.integer("type_vocab_size", 1, kMaxSize, 2);
  e.body = body;
  nn::TransformerBlockOptions block = encoder_block(c, read_activation(reader, "hidden_act", "gelu"));
  block.attention.dropout = read_dropout(reader, "attention_probs_dropout_prob", 0.1);
  block.attention_name = "attention";
  block.attention.q = "self.query";
  block.attention.k = "self.key";
  block.attention.v = "self.value";
  block.attention.o = "output.dense";
  block.attention_norm_name = "attention.output.LayerNorm";
  block.mlp_name = "intermediate";
  block.mlp.up = "dense";
  block.mlp.down = "output.dense";
  block.mlp.is_down_beside = true;
  block.mlp_norm_name = "output.LayerNorm";
  block.mixer_dropout = block.mlp_dropout = e.embedding_dropout;
  e.blocks.assign(static_cast<size_t>(c.num_layers), block);
  return c;
}

void bound_documents(EncoderConfig& c) {
  c.document_bound = {c.max_position_embeddings - c.encoder.first_position,
                      "max_position_embeddings in its config.json is the limit"};
}

}  // namespace

// BERT (Devlin et al., arXiv 1810.04805).
EncoderConfig read_bert(const io::JsonReader& reader) {
  EncoderConfig c = read_bert_like(reader, "bert");
  if (!c.tells_tokens()) c.encoder.dense.name = "bert.pooler.dense";
  c.encoder.masked = {.dense = "cls.predictions.transform.dense",
                      .norm = "cls.predictions.transform.LayerNorm",
                      .activation = c.encoder.blocks.front().mlp.activation,
                      .bias = "cls.predictions",
                      .decoder = "cls.predictions.decoder"};
  bound_documents(c);
  return c;
}

// RoBERTa (Liu et al., arXiv 1907.11692): positions begin behind that of the padding token.
EncoderConfig read_roberta(const io::JsonReader& reader) {
  EncoderConfig c = read_bert_like(reader, "roberta");
  c.encoder.first_position = c.pad_token_id.value_or(1) + 1;
  if (!c.tells_tokens()) {
    c.encoder.dense.name = "classifier.dense";
    c.encoder.dense.input_dropout = c.encoder.classifier_dropout;
    c.encoder.classifier = "classifier.out_proj";
  }
  c.encoder.masked = {.dense = "lm_head.dense",
                      .norm = "lm_head.layer_norm",
                      .bias = "lm_head",
                      .decoder = "lm_head.decoder"};
  bound_documents(c);
  return c;
}

// DistilBERT (Sanh et al., arXiv 1910.01108).
EncoderConfig read_distilbert(const io::JsonReader& reader) {
  EncoderConfig c;
  c.is_encoder = true;
  read_common(reader, c);
  c.vocab_size = reader.integer("vocab_size", 1, kMaxSize, 30522);
  c.hidden_size = reader.integer("dim", 1, kMaxSize, 768);
  c.intermediate_size = reader.integer("hidden_dim", 1, kMaxSize, 4 * 768);
  c.num_layers = reader.integer("n_layers", 1, kMaxLayers, 6);
  c.num_heads = c.num_kv_heads = reader.integer("n_heads", 1, kMaxHeads, 12);
  c.max_position_embeddings = reader.integer("max_position_embeddings", 1, kMaxSize, 512);
  c.initializer_range = reader.number("initializer_range", 0.0, 1e3, 0.02);
  if (c.hidden_size % c.num_heads != 0) {
    throw reader.problem("dim", "not a multiple of n_heads")
        .got(std::to_string(c.hidden_size))
        .need("a multiple of " + std::to_string(c.num_heads));
  }
  c.head_dim = c.hidden_size / c.num_heads;
  check_products(reader, c, {{"vocab_size", c.vocab_size}, {"hidden_dim", c.intermediate_size}});
  read_masked_tie(reader, c);
  Encoder& e = c.encoder;
  e.embedding_dropout = read_dropout(reader, "dropout", 0.1);
  e.classifier_dropout =
      c.tells_tokens() ? e.embedding_dropout : read_dropout(reader, "seq_classif_dropout", 0.2);
  e.norm = {.kind = nn::NormOptions::Kind::Layer, .eps = 1e-12};
  e.body = "distilbert";
  e.types = "";
  e.layers = "transformer.layer";
  if (!c.tells_tokens())
    e.dense = {.name = "pre_classifier", .activation = ClassifierDense::Activation::Relu};
  nn::TransformerBlockOptions block = encoder_block(c, read_activation(reader, "activation", "gelu"));
  block.attention.dropout = read_dropout(reader, "attention_dropout", 0.1);
  block.attention_name = "attention";
  block.attention.q = "q_lin";
  block.attention.k = "k_lin";
  block.attention.v = "v_lin";
  block.attention.o = "out_lin";
  block.attention_norm_name = "sa_layer_norm";
  block.mlp_name = "ffn";
  block.mlp.up = "lin1";
  block.mlp.down = "lin2";
  block.mlp_norm_name = "output_layer_norm";
  block.mlp_dropout = e.embedding_dropout;
  e.masked = {.dense = "vocab_transform",
              .norm = "vocab_layer_norm",
              .activation = block.mlp.activation,
              .bias = "vocab_projector",
              .decoder = "vocab_projector"};
  e.blocks.assign(static_cast<size_t>(c.num_layers), block);
  bound_documents(c);
  return c;
}

}  // namespace tessera::models
