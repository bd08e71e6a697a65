// Older decoders with LayerNorms: Phi 1 to 2 (Li et al., arXiv 2309.05463), GPT-J (Wang and Komatsuzaki,
// 2021), OPT (Zhang et al., arXiv 2205.01068) and MPT (MosaicML, 2023).
#include "tessera/models/common/read_config.h"
#include "tessera/models/decoder/read_rope.h"
#include "tessera/models/decoder/read_sizes.h"
#include "tessera/models/families/families.h"

namespace tessera::models {
namespace {

// Lets the MLP read what attention reads.
void make_parallel(nn::TransformerBlockOptions& block) {
  block.is_parallel = true;
  block.mlp_norm_name = "";
}

void name_mlp(nn::TransformerBlockOptions& block, const char* up, const char* down) {
  block.mlp.gate = "";
  block.mlp.up = up;
  block.mlp.down = down;
}

void set_residual_dropouts(const io::JsonReader& reader, DecoderConfig& c) {
  const double residual = read_dropout(reader, "resid_pdrop");
  set_dropouts(c, residual);
  c.decoder.embedding_dropout = read_dropout(reader, "embd_pdrop");
}

// Throws unless the key of MPT says what Transformers computes, whatever it says.
void require_mpt(const io::JsonReader& reader, const char* key, bool value) {
  if (reader.boolean(key, value) == value) return;
  throw unsupported(reader, key, "this is not implemented").need(value ? "true" : "false");
}

}  // namespace

DecoderConfig read_phi(const io::JsonReader& reader) {
  DecoderConfig c = read_with_layer_norms(
      reader, {.norm_eps = 1e-5, .norm_eps_key = "layer_norm_eps", .activation = "gelu_new"});
  set_residual_dropouts(reader, c);
  set_biases(c, true, true, true);
  set_head_bias(reader, c);
  const bool has_qk_norms = reader.boolean("qk_layernorm", false);
  for (auto& block : c.decoder.blocks) {
    make_parallel(block);
    name_mlp(block, "fc1", "fc2");
    block.attention.o = "dense";
    if (has_qk_norms) {
      block.attention.qk_norm =
          nn::QkNormOptions{.norm = c.decoder.norm, .q = "q_layernorm", .k = "k_layernorm"};
    }
  }
  c.decoder.final_norm = "final_layernorm";
  set_rope(c, read_rope(reader, c, {.partial = 0.5, .partial_key = "partial_rotary_factor"}));
  return c;
}

DecoderConfig read_gptj(const io::JsonReader& reader) {
  DecoderConfig c = read_with_layer_norms(reader, {.keys = {"n_embd", "n_layer", "n_head", "n_positions"},
                                                   .kv_heads_key = nullptr,
                                                   .norm_eps = 1e-5,
                                                   .norm_eps_key = "layer_norm_epsilon",
                                                   .activation_key = "activation_function",
                                                   .activation = "gelu_new",
                                                   .intermediate_key = "n_inner",
                                                   .intermediate_multiple = 4});
  set_attention_dropout(c, read_dropout(reader, "attn_pdrop"));
  set_residual_dropouts(reader, c);
  set_biases(c, false, false, true);
  set_head_bias(reader, c);
  for (auto& block : c.decoder.blocks) {
    make_parallel(block);
    name_mlp(block, "fc_in", "fc_out");
    block.attention_name = "attn";
    block.attention_norm_name = "ln_1";
    block.attention.o = "out_proj";
    block.attention.is_interleaved = true;
  }
  c.decoder.body = "transformer";
  c.decoder.embedding = "wte";
  c.trains_pad_row = true;
  c.decoder.layers = "h";
  c.decoder.final_norm = "ln_f";
  c.decoder.unread_endings = {".attn.bias", ".attn.masked_bias"};
  const int64_t rotated = reader.integer("rotary_dim", 2, c.head_dim, 64);
  if (rotated % 2 != 0) throw reader.problem("rotary_dim", "must be even").got(std::to_string(rotated));
  set_rope(c, {.head_dim = rotated, .max_position_embeddings = c.max_position_embeddings});
  return c;
}

DecoderConfig read_opt(const io::JsonReader& reader) {
  DecoderConfig c = read_with_layer_norms(reader, {.kv_heads_key = nullptr,
                                                   .norm_eps = 1e-5,
                                                   .is_tied = true,
                                                   .initializer_key = "init_std",
                                                   .norm_eps_key = nullptr,
                                                   .activation_key = "activation_function",
                                                   .activation = "relu",
                                                   .intermediate_key = "ffn_dim",
                                                   .pad_token = 1});
  note_dropout(reader, c, "layerdrop");
  const double dropout = read_dropout(reader, "dropout", 0.1);
  set_dropouts(c, dropout);
  const int64_t width = reader.integer("word_embed_proj_dim", 1, kMaxSize, c.hidden_size);
  if (width != c.hidden_size) {
    throw unsupported(reader, "word_embed_proj_dim", "projections of the embedding are not implemented")
        .got(std::to_string(width))
        .need(std::to_string(c.hidden_size));
  }
  c.decoder.norm.has_scale = reader.boolean("layer_norm_elementwise_affine", true);
  const bool bias = reader.boolean("enable_bias", true),
             norms_inputs = reader.boolean("do_layer_norm_before", true);
  set_biases(c, bias, bias, bias);
  for (auto& block : c.decoder.blocks) {
    block.norm = c.decoder.norm;
    name_mlp(block, "fc1", "fc2");
    block.mlp.is_up_beside = block.mlp.is_down_beside = true;
    block.attention.o = "out_proj";
    block.attention_norm_name = "self_attn_layer_norm";
    block.mlp_norm_name = "final_layer_norm";
    block.norms_sums = !norms_inputs;
  }
  c.decoder.embedding = "decoder.embed_tokens";
  c.decoder.layers = "decoder.layers";
  const bool ends_normed = norms_inputs && !reader.boolean("_remove_final_layer_norm", false);
  c.decoder.final_norm = ends_normed ? "decoder.final_layer_norm" : "";
  c.decoder.unread_endings = {"decoder.version"};
  c.decoder.positions =
      LearnedPositions{.name = "decoder.embed_positions", .rows = c.max_position_embeddings + 2, .first = 2};
  check_products(reader, c, {{"max_position_embeddings", c.decoder.positions->rows}});
  c.document_bound = c.generation_bound;
  return c;
}

DecoderConfig read_mpt(const io::JsonReader& reader) {
  DecoderConfig c = read_with_layer_norms(reader, {.keys = {"d_model", "n_layers", "n_heads", "max_seq_len"},
                                                   .kv_heads_key = nullptr,
                                                   .norm_eps = 1e-5,
                                                   .is_tied = true,
                                                   .norm_eps_key = "layer_norm_epsilon",
                                                   .activation_key = nullptr,
                                                   .intermediate_key = "n_inner",
                                                   .intermediate_multiple = 4});
  require_mpt(reader, "no_bias", true);
  c.decoder.norm.has_bias = false;
  for (auto& block : c.decoder.blocks) {
    block.norm = c.decoder.norm;
    name_mlp(block, "up_proj", "down_proj");
    block.mlp.activation = ops::Nonlinearity::Gelu;
    block.mlp_name = "ffn";
    block.attention_name = "attn";
    block.attention_norm_name = "norm_1";
    block.mlp_norm_name = "norm_2";
    block.attention.qkv = "Wqkv";
    block.attention.o = "out_proj";
    block.attention.has_key_bias = true;
  }
  if (const auto attention = reader.object("attn_config")) {
    // Transformers has this probability for what the branches add, too.
    const double dropout = read_dropout(*attention, "attn_pdrop");
    set_dropouts(c, dropout);
    set_attention_dropout(c, dropout);
    require_mpt(*attention, "alibi", true);
    for (const char* key : {"prefix_lm", "qk_ln"}) require_mpt(*attention, key, false);
    if (attention->number("alibi_bias_max", 0.0, 1e3, 8.0) != 8.0) {
      throw unsupported(*attention, "alibi_bias_max", "Transformers computes with 8, whatever this key says")
          .need("8");
    }
    for (auto& block : c.decoder.blocks) {
      block.attention.clip = attention->number("clip_qkv", 0.0, 1e6, 0.0);
      if (attention->has("softmax_scale"))
        block.attention.scale = attention->number("softmax_scale", 1e-9, 1e9);
    }
  }
  c.decoder.alibi = nn::AlibiOptions{.slopes = nn::mpt_alibi_slopes(c.num_heads, 8.0)};
  c.decoder.body = "transformer";
  c.decoder.has_named_classifier = true;
  c.decoder.embedding = "wte";
  c.trains_pad_row = true;
  c.decoder.layers = "blocks";
  c.decoder.final_norm = "norm_f";
  return c;
}

}  // namespace tessera::models
