// Families with LayerNorms, and, but for one, MLPs without a gate.
#include "tessera/models/common/read_config.h"
#include "tessera/models/decoder/read_rope.h"
#include "tessera/models/decoder/read_sizes.h"
#include "tessera/models/families/families.h"

namespace tessera::models {
namespace {

// Gives the projections the names that they have in Megatron-LM.
void name_as_megatron(nn::TransformerBlockOptions& block) {
  block.attention.qkv = "query_key_value";
  block.attention.is_stored_by_head = true;
  block.attention.o = "dense";
  block.mlp.gate = "";
  block.mlp.up = "dense_h_to_4h";
  block.mlp.down = "dense_4h_to_h";
}

// Gives the scores of all heads linear biases, in the place of rotary positions.
void set_alibi(DecoderConfig& c, bool is_falcon) {
  c.decoder.alibi = nn::AlibiOptions{.slopes = nn::alibi_slopes(c.num_heads), .is_rounded = is_falcon};
  for (auto& block : c.decoder.blocks) {
    block.attention.has_key_bias = true;
    block.attention.scales_bias = is_falcon;
  }
}

}  // namespace

// BLOOM of BigScience (arXiv 2211.05100).
DecoderConfig read_bloom(const io::JsonReader& reader) {
  DecoderConfig c = read_with_layer_norms(reader, {.keys = {"n_embed", "n_layer", "n_head", "seq_length"},
                                                   .kv_heads_key = nullptr,
                                                   .norm_eps = 1e-5,
                                                   .is_tied = true,
                                                   .norm_eps_key = "layer_norm_epsilon",
                                                   .activation_key = nullptr,
                                                   .intermediate_key = "n_inner",
                                                   .intermediate_multiple = 4});
  const double dropout = read_hidden_dropout(reader, c);
  set_dropouts(c, dropout);
  if (reader.boolean("apply_residual_connection_post_layernorm", false)) {
    throw unsupported(reader, "apply_residual_connection_post_layernorm",
                      "residual sums of normed states are not implemented")
        .need("false");
  }
  set_biases(c, true, true, true);
  for (auto& block : c.decoder.blocks) {
    block.attention_name = "self_attention";
    block.mlp.activation = ops::Nonlinearity::GeluTanh;
    name_as_megatron(block);
  }
  c.decoder.body = "transformer";
  c.decoder.has_named_classifier = true;
  c.decoder.embedding = "word_embeddings";
  c.trains_pad_row = true;
  c.decoder.embedding_norm = "word_embeddings_layernorm";
  c.decoder.layers = "h";
  c.decoder.final_norm = "ln_f";
  set_alibi(c, /*is_falcon=*/false);
  c.generation_bound.reset();
  return c;
}

// GPT-NeoX and Pythia (Black et al., arXiv 2204.06745).
DecoderConfig read_gpt_neox(const io::JsonReader& reader) {
  DecoderConfig c = read_with_layer_norms(
      reader,
      {.kv_heads_key = nullptr, .norm_eps = 1e-5, .norm_eps_key = "layer_norm_eps", .activation = "gelu"});
  const double dropout = c.decoder.embedding_dropout = read_dropout(reader, "hidden_dropout");
  set_dropouts(c, dropout);
  c.classifier_dropout = read_dropout(reader, "classifier_dropout", 0.1);
  const bool bias = reader.boolean("attention_bias", true),
             is_parallel = reader.boolean("use_parallel_residual", true);
  set_biases(c, bias, bias, true);
  for (auto& block : c.decoder.blocks) {
    block.is_parallel = is_parallel;
    block.attention_name = "attention";
    name_as_megatron(block);
  }
  c.decoder.unread_endings = {".attention.bias", ".attention.masked_bias"};
  c.decoder.body = "gpt_neox";
  c.decoder.embedding = "embed_in";
  c.trains_pad_row = true;
  c.decoder.final_norm = "final_layer_norm";
  c.decoder.head = "embed_out";
  c.decoder.has_named_classifier = true;
  set_rope(c, read_rope(reader, c,
                        {.partial = 0.25, .theta_key = "rotary_emb_base", .partial_key = "rotary_pct"}));
  return c;
}

// Falcon RW, 7B, 40B and 180B (Almazrouei et al., arXiv 2311.16867).
DecoderConfig read_falcon(const io::JsonReader& reader) {
  const bool is_new = reader.boolean("new_decoder_architecture", false);
  const int64_t heads = reader.integer("num_attention_heads", 1, kMaxHeads, 71);
  const int64_t kv_heads = is_new ? reader.integer("num_kv_heads", 1, kMaxHeads, heads)
                           : reader.boolean("multi_query", true) ? 1
                                                                 : heads;
  DecoderConfig c = read_with_layer_norms(reader, {.kv_heads = kv_heads,
                                                   .kv_heads_key = nullptr,
                                                   .norm_eps = 1e-5,
                                                   .is_tied = true,
                                                   .norm_eps_key = "layer_norm_epsilon",
                                                   .activation_key = "activation",
                                                   .activation = "gelu",
                                                   .intermediate_key = "ffn_hidden_size",
                                                   .intermediate_multiple = 4});
  const bool bias = reader.boolean("bias", false);
  const bool is_parallel = is_new || reader.boolean("parallel_attn", true);
  const double dropout = read_hidden_dropout(reader, c);
  // Transformers drops the result of attention alone with the probability for its scores, and the scores
  // themselves with ALiBi only.
  set_dropouts(c, is_parallel ? dropout : read_dropout(reader, "attention_dropout"), dropout);
  if (!reader.boolean("alibi", false)) set_attention_dropout(c, 0.0);
  const bool has_two = is_new && reader.integer("num_ln_in_parallel_attn", 1, 2, 2) == 2;
  set_biases(c, bias, bias, bias);
  for (auto& block : c.decoder.blocks) {
    block.is_parallel = block.drops_sum = is_parallel;
    block.attention_name = "self_attention";
    block.attention_norm_name = has_two ? "ln_attn" : "input_layernorm";
    block.mlp_norm_name = has_two ? "ln_mlp" : is_parallel ? "" : "post_attention_layernorm";
    name_as_megatron(block);
  }
  c.decoder.body = "transformer";
  c.decoder.has_named_classifier = true;
  c.decoder.embedding = "word_embeddings";
  c.trains_pad_row = true;
  c.decoder.layers = "h";
  c.decoder.final_norm = "ln_f";
  if (!reader.boolean("alibi", false)) {
    set_rope(c, read_rope(reader, c));
    return c;
  }
  if (kv_heads != heads) {
    throw unsupported(reader, "alibi", "ALiBi is not implemented for heads that share keys")
        .got(std::to_string(kv_heads) + " key/value heads")
        .need(std::to_string(heads));
  }
  set_alibi(c, /*is_falcon=*/true);
  return c;
}

// Nemotron-4 and Minitron of NVIDIA (arXiv 2402.16819): norms with 1 + weight, and relu^2.
DecoderConfig read_nemotron(const io::JsonReader& reader) {
  DecoderConfig c = read_with_layer_norms(reader, {.max_position_embeddings = 4096,
                                                   .initializer_range = 0.0134,
                                                   .norm_eps = 1e-5,
                                                   .norm_eps_key = "norm_eps",
                                                   .activation = "relu2"});
  const bool bias = reader.boolean("attention_bias", false);
  set_biases(c, bias, bias, reader.boolean("mlp_bias", false));
  c.decoder.norm.adds_one = true;
  for (auto& block : c.decoder.blocks) {
    block.norm = c.decoder.norm;
    block.mlp.gate = "";
  }
  set_rope(c, read_rope(reader, c, {.partial = 0.5, .partial_key = "partial_rotary_factor"}));
  return c;
}

// StableLM of Stability AI (arXiv 2402.17834): a quarter of each head is rotated; the MLP has a gate.
DecoderConfig read_stablelm(const io::JsonReader& reader) {
  DecoderConfig c = read_with_layer_norms(
      reader, {.max_position_embeddings = 4096, .norm_eps = 1e-5, .norm_eps_key = "layer_norm_eps"});
  set_dropouts(c, 0.0, read_hidden_dropout(reader, c));
  if (reader.boolean("qk_layernorm", false)) {
    for (auto& block : c.decoder.blocks) {
      block.attention.qk_norm = nn::QkNormOptions{.norm = c.decoder.norm,
                                                  .over = nn::QkNormOptions::Over::EachHead,
                                                  .q = "q_layernorm",
                                                  .k = "k_layernorm",
                                                  .stored_list = "norms"};
    }
  }
  set_biases(c, reader.boolean("use_qkv_bias", false), false, false);
  if (reader.boolean("use_parallel_residual", false)) {
    for (auto& block : c.decoder.blocks) {
      block.is_parallel = true;
      block.mlp_norm_name = "";
    }
  }
  set_rope(c, read_rope(reader, c, {.partial = 0.25, .partial_key = "partial_rotary_factor"}));
  return c;
}

// StarCoder2 of BigCode (arXiv 2402.19173).
DecoderConfig read_starcoder2(const io::JsonReader& reader) {
  DecoderConfig c = read_with_layer_norms(reader, {.max_position_embeddings = 4096,
                                                   .kv_heads = 2,
                                                   .initializer_range = 0.018042,
                                                   .norm_eps = 1e-5,
                                                   .is_tied = true,
                                                   .norm_eps_key = "norm_epsilon",
                                                   .activation = "gelu_pytorch_tanh"});
  c.decoder.embedding_dropout = read_dropout(reader, "embedding_dropout");
  const double residual = read_dropout(reader, "residual_dropout");
  set_dropouts(c, residual);
  const bool bias = reader.boolean("use_bias", true);
  set_biases(c, bias, bias, bias);
  for (auto& block : c.decoder.blocks) {
    block.mlp.gate = "";
    block.mlp.up = "c_fc";
    block.mlp.down = "c_proj";
  }
  set_windows(reader, c, std::vector<bool>(c.decoder.blocks.size(), true), std::nullopt);
  set_rope(c, read_rope(reader, c));
  return c;
}

}  // namespace tessera::models
