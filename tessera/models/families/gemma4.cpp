// The text part of Gemma 4 (Google DeepMind, 2026): heads of two sizes, values from the keys' projection,
// experts beside a dense MLP, layers that read the keys and values of others, and an embedding for each
// layer.
#include <algorithm>
#include <cmath>
#include <map>

#include "tessera/models/common/read_config.h"
#include "tessera/models/decoder/read_experts.h"
#include "tessera/models/decoder/read_rope.h"
#include "tessera/models/decoder/read_sizes.h"
#include "tessera/models/families/families.h"

namespace tessera::models {
namespace {

void refuse_other_forms(const io::JsonReader& reader) {
  // Tokens of images see both sides with "vision", tokens of text never.
  const std::string sides = reader.text("use_bidirectional_attention", "vision");
  if (sides == "vision") return;
  throw unsupported(reader, "use_bidirectional_attention",
                    "bidirectional attention of text is not implemented here")
      .got("'" + sides + "'")
      .need("null, or 'vision', which means images alone");
}

// Sets the heads of a layer, which `section` and `key` give where they are not those of the model.
void set_heads(const io::JsonReader& section, const char* dim_key, const char* kv_key, const DecoderConfig& c,
               nn::AttentionOptions& attention) {
  attention.head_dim = section.integer(dim_key, 1, kMaxHeads, attention.head_dim);
  check_products(section, c, {{dim_key, c.num_heads * attention.head_dim}});
  if (kv_key == nullptr) return;
  attention.num_kv_heads = section.integer(kv_key, 1, kMaxHeads, attention.num_kv_heads);
  if (c.num_heads % attention.num_kv_heads == 0) return;
  throw section.problem(kv_key, "must divide num_attention_heads")
      .got(std::to_string(attention.num_kv_heads))
      .need("a divisor of " + std::to_string(c.num_heads));
}

// Reads the heads of single layers, in the form of Transformers 5.
void read_layers(const io::JsonReader& layers, DecoderConfig& c) {
  for (const std::string& number : layers.keys()) {
    int64_t layer = 0;
    while (layer < c.num_layers && std::to_string(layer) != number) ++layer;
    if (layer == c.num_layers) {
      throw layers.problem(number, "no number of a layer").need("0 to " + std::to_string(c.num_layers - 1));
    }
    const io::JsonReader own = *layers.object(number);
    for (const std::string& key : own.keys()) {
      if (key == "head_dim" || key == "num_key_value_heads") continue;
      throw unsupported(own, "per_layer_config." + number + "." + key,
                        "layers that differ in this are not implemented")
          .need("head_dim and num_key_value_heads alone");
    }
    set_heads(own, "head_dim", "num_key_value_heads", c,
              c.decoder.blocks[static_cast<size_t>(layer)].attention);
  }
}

nn::RopeOptions read_layer_rope(const io::JsonReader& reader, const DecoderConfig& c,
                                const std::vector<bool>& slides, bool is_sliding) {
  const std::string type = is_sliding ? "sliding_attention" : "full_attention";
  std::optional<int64_t> head_dim;
  for (size_t layer = 0; layer < slides.size(); ++layer) {
    if (slides[layer] != is_sliding) continue;
    const int64_t own = c.decoder.blocks[layer].attention.head_dim;
    if (head_dim.value_or(own) != own) {
      throw unsupported(reader, "per_layer_config", "heads of several sizes in layers of the type " + type);
    }
    head_dim = own;
  }
  const auto section = rope_section(reader);
  if (head_dim && section && !section->has(type))
    throw reader.problem("rope_parameters", "must describe layers of the type " + type);
  nn::RopeOptions rope =
      read_rope(reader, c,
                {.theta_key = nullptr, .layer_type = type, .head_dim = head_dim, .takes_proportional = true});
  if (section || is_sliding) return rope;
  rope.theta = 1e6;
  rope.type = nn::RopeType::Proportional;
  rope.turning = rope.head_dim / 8;
  return rope;
}

// Returns the last layer of the first `own` ones that has a window, or has none, as `layer` does.
size_t giver_of(const io::JsonReader& reader, const std::vector<bool>& slides, size_t own, size_t layer) {
  for (size_t giver = own; giver > 0; --giver) {
    if (slides[giver - 1] == slides[layer]) return giver - 1;
  }
  throw reader
      .problem("num_kv_shared_layers", "no earlier layer is of the type of layer " + std::to_string(layer) +
                                           ", which reads its keys and values")
      .got(std::to_string(slides.size() - own))
      .need("a layer of each type before those that share");
}

// The last layers read the keys and values of the last earlier layer of their type.
void share_keys(const io::JsonReader& reader, const std::vector<bool>& slides, DecoderConfig& c) {
  const int64_t count = reader.integer("num_kv_shared_layers", 0, c.num_layers - 1, 0);
  const bool are_wide = reader.boolean("use_double_wide_mlp", false) && count > 0;
  if (are_wide) check_products(reader, c, {{"intermediate_size", 2 * c.intermediate_size}});
  c.shares_keys = count > 0;
  auto& blocks = c.decoder.blocks;
  const size_t own = blocks.size() - static_cast<size_t>(count);
  // Numbers of the shared keys, by the layers that give them.
  std::map<size_t, int64_t> numbers;
  for (size_t layer = own; layer < blocks.size(); ++layer) {
    const size_t giver = giver_of(reader, slides, own, layer);
    const int64_t number = numbers.emplace(giver, std::ssize(numbers)).first->second;
    nn::AttentionOptions &reads = blocks[layer].attention, &gives = blocks[giver].attention;
    if (reads.head_dim != gives.head_dim || reads.num_kv_heads != gives.num_kv_heads) {
      throw unsupported(reader, "per_layer_config",
                        "a layer that reads the keys of one with other heads is not implemented")
          .got("layer " + std::to_string(layer) + ", which reads those of layer " + std::to_string(giver));
    }
    reads.shared_keys = gives.shared_keys = number;
    reads.k = reads.v = "";
    if (are_wide) blocks[layer].mlp.intermediate_size *= 2;
    // Files may have weights of keys that nothing reads.
    for (const char* module : {"k_proj", "v_proj", "k_norm", "v_norm"}) {
      for (const char* kind : {"weight", "bias"})
        c.decoder.unread_endings.push_back("layers." + std::to_string(layer) + ".self_attn." + module + "." +
                                           kind);
    }
  }
}

// Gives each layer an embedding of its own, as Gemma 4 E2B and E4B have it.
void set_layer_inputs(const io::JsonReader& reader, DecoderConfig& c) {
  const int64_t size = reader.integer("hidden_size_per_layer_input", 0, kMaxSize, 256);
  const int64_t rows = reader.integer("vocab_size_per_layer_input", 1, kMaxSize, 262144);
  if (size == 0) return;
  if (rows < c.vocab_size) {
    throw reader.problem("vocab_size_per_layer_input", "less than the vocabulary")
        .got(std::to_string(rows))
        .need("at least " + std::to_string(c.vocab_size));
  }
  check_elements(reader, "hidden_size_per_layer_input", size, c.num_layers * std::max(rows, c.hidden_size));
  c.has_layer_inputs = true;
  c.decoder.layer_table_scale = std::sqrt(static_cast<double>(size));
  c.decoder.layer_inputs = nn::LayerInputsOptions{.hidden_size = c.hidden_size,
                                                  .num_layers = c.num_layers,
                                                  .size = size,
                                                  .rows = rows,
                                                  .activation = c.decoder.blocks.front().mlp.activation,
                                                  .norm = c.decoder.norm};
  for (size_t layer = 0; layer < c.decoder.blocks.size(); ++layer) {
    c.decoder.blocks[layer].layer_inputs = c.decoder.layer_inputs;
    c.decoder.blocks[layer].layer_input_number = static_cast<int64_t>(layer);
  }
}

void set_attention(const io::JsonReader& reader, DecoderConfig& c) {
  auto slides = read_sliding_layers(reader, c, [](int64_t layer) { return (layer + 1) % 6 != 0; });
  slides.back() = false;
  set_windows(reader, c, slides, 512);
  const bool shares_keys = reader.boolean("attention_k_eq_v", false);
  const auto layers = reader.object("per_layer_config");
  for (size_t layer = 0; layer < slides.size(); ++layer) {
    nn::AttentionOptions& attention = c.decoder.blocks[layer].attention;
    attention.scale = 1.0;
    attention.rotary = slides[layer] ? 1 : 0;
    attention.qk_norm = nn::QkNormOptions{.norm = c.decoder.norm, .norms_values = true};
    if (slides[layer]) continue;
    if (shares_keys) attention.v = "";
    if (layers) continue;
    attention.head_dim = 512;
    set_heads(reader, "global_head_dim", shares_keys ? "num_global_key_value_heads" : nullptr, c, attention);
  }
  if (layers) read_layers(*layers, c);
  set_rope(c, read_layer_rope(reader, c, slides, false));
  c.decoder.ropes.push_back(read_layer_rope(reader, c, slides, true));
  share_keys(reader, slides, c);
}

void set_experts_beside(const io::JsonReader& reader, DecoderConfig& c) {
  if (!reader.boolean("enable_moe_block", false)) return;
  const ExpertKeys keys{
      .count_key = "num_experts", .per_token_key = "top_k_experts", .size_key = "moe_intermediate_size"};
  for (const char* key : {keys.count_key, keys.per_token_key, keys.size_key}) {
    if (!reader.has(key)) throw reader.problem(key, "missing key");
  }
  const ExpertLayers layers = read_experts(reader, c, keys);
  for (nn::TransformerBlockOptions& block : c.decoder.blocks) {
    block.sparse = expert_options(c, layers, keys);
    block.sparse->expert.activation = block.mlp.activation;
    block.sparse->gate = "router.proj";
    block.sparse->norm = block.norm;
    block.sparse->input_norm = "pre_feedforward_layernorm_2";
    block.sparse->input_scale = "router.scale";
    block.sparse->expert_scale = "router.per_expert_scale";
    block.sparse->is_beside = true;
    block.beside = {"experts", "post_feedforward_layernorm_1", "post_feedforward_layernorm_2"};
  }
  stack_experts(c, {.gate_up = "experts.gate_up_proj", .down = "experts.down_proj"});
}

}  // namespace

DecoderConfig read_gemma4(const io::JsonReader& reader) {
  DecoderConfig c = read_decoder(reader, {.max_position_embeddings = 131072,
                                          .head_dim = 256,
                                          .kv_heads = 4,
                                          .is_tied = true,
                                          .activation_key = "hidden_activation",
                                          .activation = "gelu_pytorch_tanh",
                                          .pad_token = 0});
  refuse_other_forms(reader);
  c.decoder.embedding_scale = std::sqrt(static_cast<double>(c.hidden_size));
  c.decoder.rounds_embedding_scale = true;
  c.decoder.logit_soft_cap = reader.number("final_logit_softcapping", 0.0, 1e6, 0.0);
  const bool bias = reader.boolean("attention_bias", false);
  set_biases(c, bias, bias, false);
  for (nn::TransformerBlockOptions& block : c.decoder.blocks) {
    block.attention_out_norm_name = "post_attention_layernorm";
    block.mlp_norm_name = "pre_feedforward_layernorm";
    block.mlp_out_norm_name = "post_feedforward_layernorm";
    block.result_scale_name = "layer_scalar";
  }
  set_attention(reader, c);
  set_layer_inputs(reader, c);
  set_experts_beside(reader, c);
  return c;
}

}  // namespace tessera::models
