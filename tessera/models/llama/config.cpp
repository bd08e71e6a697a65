#include "tessera/models/llama/config.h"

#include <algorithm>
#include <utility>

#include "tessera/models/common/read_config.h"
#include "tessera/models/decoder/read_rope.h"
#include "tessera/models/decoder/read_sizes.h"

namespace tessera::models {
namespace {

constexpr int64_t kMaxExperts = 1 << 17;  // largest number of experts of all layers together

// Reads the window of each layer.
void read_windows(const io::JsonReader& reader, LlamaConfig& config) {
  const LlamaWindows windows = config.kind().windows;
  if (windows == LlamaWindows::None) return;
  if (windows != LlamaWindows::All && !reader.boolean("use_sliding_window", false)) return;
  const bool slides_all = windows != LlamaWindows::SomeIfAsked;
  auto window = reader.optional_integer("sliding_window", 1, kMaxSize);
  if (!reader.is_null("sliding_window") && !window) window = config.kind().default_window;
  if (!window.has_value()) return;
  const int64_t first = slides_all ? 0 : reader.integer("max_window_layers", 0, kMaxSize, 28);
  const auto slides = slides_all ? std::vector<bool>(static_cast<size_t>(config.num_layers), true)
                                 : read_sliding_layers(reader, config, [&](int64_t i) { return i >= first; });
  for (const bool layer_slides : slides) config.windows.push_back(layer_slides ? *window : 0);
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
  if (read_activation(reader, "hidden_act", "silu") != ops::Nonlinearity::Silu) {
    throw unsupported(reader, "hidden_act",
                      "activation '" + reader.text("hidden_act") + "' is not implemented")
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
  read_sizes(reader, c, {.max_position_embeddings = kind.max_position_embeddings, .head_dim = kind.head_dim});
  c.rms_norm_eps = reader.number("rms_norm_eps", 0.0, 1.0, kind.rms_norm_eps);

  const bool attention_bias = kind.has_attention_bias_key && reader.boolean("attention_bias", false);
  c.qkv_bias = kind.has_qkv_bias || attention_bias;
  c.output_bias = !kind.has_qkv_bias && attention_bias;
  c.mlp_bias = kind.has_mlp_bias_key && reader.boolean("mlp_bias", false);
  c.qk_norm = kind.qk_norm;

  c.rope = read_rope(reader, c, {.theta = kind.rope_theta});
  bound_generation(c, c.rope);
  read_windows(reader, c);
  read_experts(reader, c);
  return c;
}

}  // namespace tessera::models
