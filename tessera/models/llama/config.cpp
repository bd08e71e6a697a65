#include "tessera/models/llama/config.h"

#include <algorithm>
#include <utility>

#include "tessera/models/common/read_config.h"

namespace tessera::models {
namespace {

constexpr double kHuge = 1e18;
constexpr int64_t kMaxExperts = 1 << 17;  // largest number of experts of all layers together

nn::RopeType parse_rope_type(const io::JsonReader& rope, const std::string& section) {
  const std::string key = rope.has("rope_type") ? "rope_type" : "type";
  const std::string name = rope.text(key, "default");
  if (name == "default") return nn::RopeType::Default;
  if (name == "linear") return nn::RopeType::Linear;
  if (name == "dynamic") return nn::RopeType::Dynamic;
  if (name == "llama3") return nn::RopeType::Llama3;
  if (name == "yarn") return nn::RopeType::Yarn;
  throw unsupported(rope, section + "." + key, "RoPE type '" + name + "' is not implemented")
      .need("default, linear, dynamic, llama3 or yarn");
}

void read_yarn(const io::JsonReader& rope, nn::RopeOptions& out) {
  if (!rope.has("factor")) {
    out.factor = static_cast<double>(out.max_position_embeddings) /
                 static_cast<double>(out.original_max_position_embeddings);
  }
  out.beta_fast = rope.number("beta_fast", 1e-6, 1e6, 32.0);
  out.beta_slow = rope.number("beta_slow", 1e-6, 1e6, 1.0);
  out.truncate = rope.boolean("truncate", true);
  const double mscale = rope.number("mscale", 0.0, 1e6, 0.0);
  const double mscale_all_dim = rope.number("mscale_all_dim", 0.0, 1e6, 0.0);
  const double inferred = nn::yarn_attention_factor(out.factor, mscale, mscale_all_dim);
  out.attention_factor = rope.number("attention_factor", 1e-6, 1e6, inferred);
}

// Reads either form of the configuration: `rope_scaling` beside `rope_theta`, or `rope_parameters` that holds
// everything.
nn::RopeOptions read_rope(const io::JsonReader& reader, const LlamaConfig& config) {
  nn::RopeOptions out;
  out.head_dim = config.head_dim;
  out.max_position_embeddings = config.max_position_embeddings;
  out.theta = reader.number("rope_theta", 1.0 + 1e-9, kHuge, config.kind().rope_theta);

  const std::string section = reader.has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  const auto rope = reader.object(section);
  if (reader.number("partial_rotary_factor", 0.0, 1.0, 1.0) != 1.0) {
    throw unsupported(reader, "partial_rotary_factor", "rotating a part of each head is not implemented");
  }
  if (!rope.has_value()) return out;
  for (const char* layer_type : {"full_attention", "sliding_attention"}) {
    if (rope->has(layer_type)) {
      throw unsupported(reader, section + "." + layer_type,
                        "RoPE that differs between layers is not implemented");
    }
  }
  if (rope->number("partial_rotary_factor", 0.0, 1.0, 1.0) != 1.0) {
    throw unsupported(reader, section + ".partial_rotary_factor",
                      "rotating a part of each head is not implemented");
  }
  out.theta = rope->number("rope_theta", 1.0 + 1e-9, kHuge, out.theta);
  out.type = parse_rope_type(*rope, section);
  if (out.type == nn::RopeType::Default) return out;

  const bool factor_is_optional = out.type == nn::RopeType::Yarn || out.type == nn::RopeType::Dynamic;
  out.factor =
      rope->number("factor", 1e-6, 1e9, factor_is_optional ? std::optional<double>(1.0) : std::nullopt);
  const int64_t trained_length =
      reader.integer("original_max_position_embeddings", 1, kMaxSize, config.max_position_embeddings);
  out.original_max_position_embeddings =
      rope->integer("original_max_position_embeddings", 1, kMaxSize, trained_length);
  if (out.type == nn::RopeType::Llama3) {
    out.low_freq_factor = rope->number("low_freq_factor", 1e-6, 1e6);
    out.high_freq_factor = rope->number("high_freq_factor", 1e-6, 1e6);
    if (out.high_freq_factor <= out.low_freq_factor) {
      throw rope->problem("high_freq_factor", "must be above low_freq_factor");
    }
  }
  if (out.type == nn::RopeType::Yarn) read_yarn(*rope, out);
  if (out.type == nn::RopeType::Dynamic && out.head_dim <= 2) {
    throw rope->problem("rope_type", "dynamic scaling needs a head size above 2");
  }
  return out;
}

void read_lengths(const io::JsonReader& reader, LlamaConfig& config) {
  // Dynamic RoPE gives every length beyond the bound its own frequencies, so the keys in a cache, which were
  // rotated by older ones, would be wrong. The other types could go on, but to positions that the model never
  // learned.
  config.generation_bound = {
      config.max_position_embeddings,
      config.rope.type == nn::RopeType::Dynamic
          ? "generating beyond max_position_embeddings with dynamic RoPE is not implemented"
          : "max_position_embeddings in its config.json is the limit"};
}

// Reads the window of each layer.
void read_windows(const io::JsonReader& reader, LlamaConfig& config) {
  const LlamaWindows windows = config.kind().windows;
  if (windows == LlamaWindows::None) return;
  if (windows != LlamaWindows::All && !reader.boolean("use_sliding_window", false)) return;
  const bool slides_all = windows != LlamaWindows::SomeIfAsked;
  const auto window = reader.optional_integer("sliding_window", 1, kMaxSize);
  if (!window.has_value()) return;
  const int64_t first = slides_all ? 0 : reader.integer("max_window_layers", 0, kMaxSize, 28);
  const auto types = slides_all ? std::vector<std::string>() : reader.texts("layer_types");
  if (!types.empty() && static_cast<int64_t>(types.size()) != config.num_layers) {
    throw reader.problem("layer_types", "must name the type of every layer")
        .got(std::to_string(types.size()) + " types")
        .need(std::to_string(config.num_layers));
  }
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const bool slides = types.empty() ? i >= first : types[static_cast<size_t>(i)] == "sliding_attention";
    config.windows.push_back(slides ? *window : 0);
  }
}

// Reads which layers have experts, and of what size. Where there are keys for it, these are every
// decoder_sparse_step-th layer except those of mlp_only_layers.
void read_experts(const io::JsonReader& reader, LlamaConfig& config) {
  const std::optional<LlamaExperts>& experts = config.kind().experts;
  if (!experts) return;
  const char* const count =
      experts->has_num_experts_key && reader.has("num_experts") ? "num_experts" : "num_local_experts";
  config.num_experts = reader.integer(count, 1, kMaxExperts / config.num_layers, experts->num_experts);
  config.experts_per_token =
      reader.integer("num_experts_per_tok", 1, config.num_experts, experts->experts_per_token);
  config.expert_size = reader.integer(experts->size_key, 1, kMaxSize, experts->size);
  check_products(reader, config, {{experts->size_key, config.expert_size}});
  const bool has_layer_keys = experts->has_layer_keys;
  config.normalises_router = !has_layer_keys || reader.boolean("norm_topk_prob", false);
  if (experts->has_jitter_key && reader.number("router_jitter_noise", 0.0, 1.0, 0.0) != 0.0) {
    throw unsupported(reader, "router_jitter_noise", "noise in the router's input is not implemented")
        .need("0");
  }
  const int64_t step = has_layer_keys ? reader.integer("decoder_sparse_step", 1, kMaxLayers, 1) : 1;
  const auto dense =
      has_layer_keys ? reader.integers("mlp_only_layers", 0, kMaxLayers) : std::vector<int64_t>();
  for (int64_t i = 0; i < config.num_layers; ++i) {
    config.sparse_layers.push_back((i + 1) % step == 0 && std::ranges::find(dense, i) == dense.end());
  }
  const double coefficient = reader.number("router_aux_loss_coef", 0.0, 1e6, 0.001);
  if (reader.boolean("output_router_logits", false)) config.router_aux_loss_coef = coefficient;
}

void refuse_unsupported(const io::JsonReader& reader) {
  const std::string activation = reader.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    throw unsupported(reader, "hidden_act", "activation '" + activation + "' is not implemented")
        .need("silu");
  }
  if (reader.number("attention_dropout", 0.0, 1.0, 0.0) != 0.0) {
    throw unsupported(reader, "attention_dropout", "dropout in attention is not implemented").need("0");
  }
  const auto layer_types = reader.texts("layer_types");
  for (const std::string& type : layer_types) {
    if (type != "full_attention" && type != "sliding_attention") {
      throw unsupported(reader, "layer_types", "layer type '" + type + "' is not implemented");
    }
  }
}

}  // namespace

LlamaConfig read_llama_config(const io::JsonReader& reader) {
  LlamaConfig c;
  read_common(reader, c);
  refuse_unsupported(reader);

  const LlamaKind& kind = c.kind();
  c.vocab_size = reader.integer("vocab_size", 1, kMaxSize);
  c.hidden_size = reader.integer("hidden_size", 1, kMaxSize);
  c.intermediate_size = reader.integer("intermediate_size", 1, kMaxSize);
  c.num_layers = reader.integer("num_hidden_layers", 1, kMaxLayers);
  c.num_heads = reader.integer("num_attention_heads", 1, kMaxHeads);
  c.num_kv_heads = reader.integer("num_key_value_heads", 1, kMaxHeads, c.num_heads);
  if (c.num_heads % c.num_kv_heads != 0) {
    throw reader.problem("num_key_value_heads", "must divide num_attention_heads")
        .got(std::to_string(c.num_kv_heads))
        .need("a divisor of " + std::to_string(c.num_heads));
  }
  if (kind.head_dim || reader.has("head_dim")) {
    c.head_dim = reader.integer("head_dim", 1, kMaxHeads, kind.head_dim);
  } else {
    if (c.hidden_size % c.num_heads != 0) {
      throw reader.problem("hidden_size", "not a multiple of num_attention_heads, and no head_dim is given")
          .got(std::to_string(c.hidden_size))
          .need("a multiple of " + std::to_string(c.num_heads));
    }
    c.head_dim = c.hidden_size / c.num_heads;
  }
  if (c.head_dim % 2 != 0) {
    throw reader.problem("head_dim", "rotary positions need an even head size")
        .got(std::to_string(c.head_dim));
  }
  check_products(reader, c,
                 {{"vocab_size", c.vocab_size},
                  {"intermediate_size", c.intermediate_size},
                  {"head_dim", c.num_heads * c.head_dim}});
  c.max_position_embeddings =
      reader.integer("max_position_embeddings", 1, kMaxSize, kind.max_position_embeddings);
  c.initializer_range = reader.number("initializer_range", 0.0, 1e3, 0.02);
  c.rms_norm_eps = reader.number("rms_norm_eps", 0.0, 1.0, kind.rms_norm_eps);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);

  const bool attention_bias = kind.has_attention_bias_key && reader.boolean("attention_bias", false);
  c.qkv_bias = kind.has_qkv_bias || attention_bias;
  c.output_bias = !kind.has_qkv_bias && attention_bias;
  c.mlp_bias = kind.has_mlp_bias_key && reader.boolean("mlp_bias", false);
  c.qk_norm = kind.qk_norm;

  c.rope = read_rope(reader, c);
  read_lengths(reader, c);
  read_windows(reader, c);
  read_experts(reader, c);
  return c;
}

}  // namespace tessera::models
