#include "tessera/models/gpt2/config.h"

#include "tessera/models/common/read_config.h"
#include "tessera/models/decoder/read_sizes.h"

namespace tessera::models {
namespace {

ops::Nonlinearity read_activation(const io::JsonReader& reader) {
  const std::string name = reader.text("activation_function", "gelu_new");
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return ops::Nonlinearity::GeluTanh;
  if (name == "gelu") return ops::Nonlinearity::Gelu;
  if (name == "silu" || name == "swish") return ops::Nonlinearity::Silu;
  throw unsupported(reader, "activation_function", "activation '" + name + "' is not implemented")
      .need("gelu_new, gelu_pytorch_tanh, gelu or silu");
}

}  // namespace

Gpt2Config read_gpt2_config(const io::JsonReader& reader) {
  Gpt2Config c;
  read_common(reader, c);
  if (reader.boolean("add_cross_attention", false)) {
    throw unsupported(reader, "add_cross_attention", "cross-attention is not implemented");
  }
  c.vocab_size = reader.integer("vocab_size", 1, kMaxSize, 50257);
  c.hidden_size = reader.integer("n_embd", 1, kMaxSize, 768);
  c.num_layers = reader.integer("n_layer", 1, kMaxLayers, 12);
  c.num_heads = c.num_kv_heads = reader.integer("n_head", 1, kMaxHeads, 12);
  if (c.hidden_size % c.num_heads != 0) {
    throw reader.problem("n_embd", "not a multiple of n_head")
        .got(std::to_string(c.hidden_size))
        .need("a multiple of " + std::to_string(c.num_heads));
  }
  c.head_dim = c.hidden_size / c.num_heads;
  c.max_position_embeddings = reader.integer("n_positions", 1, kMaxSize, 1024);
  c.intermediate_size = reader.optional_integer("n_inner", 1, kMaxSize).value_or(4 * c.hidden_size);
  check_products(reader, c,
                 {{"vocab_size", c.vocab_size},
                  {"n_inner", c.intermediate_size},
                  {"n_embd", 3 * c.hidden_size},
                  {"n_positions", c.max_position_embeddings}});
  c.activation = read_activation(reader);
  c.layer_norm_eps = reader.number("layer_norm_epsilon", 0.0, 1.0, 1e-5);
  c.initializer_range = reader.number("initializer_range", 0.0, 1e3, 0.02);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  c.scales_scores = reader.boolean("scale_attn_weights", true);
  c.scales_scores_by_layer = reader.boolean("scale_attn_by_inverse_layer_idx", false);
  c.document_bound =
      c.generation_bound = {c.max_position_embeddings, "n_positions in its config.json is the limit"};
  c.embedding_dropout = read_dropout(reader, "embd_pdrop", 0.1);
  c.residual_dropout = read_dropout(reader, "resid_pdrop", 0.1);
  c.attention_dropout = read_dropout(reader, "attn_pdrop", 0.1);
  return c;
}

}  // namespace tessera::models
