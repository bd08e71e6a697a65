#include "tessera/models/llama/config.h"

#include "tessera/models/common/read_config.h"
#include "tessera/models/decoder/read_rope.h"
#include "tessera/models/decoder/read_sizes.h"

namespace tessera::models {
namespace {

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

void refuse_unsupported(const io::JsonReader& reader) {
  if (read_activation(reader, "hidden_act", "silu") != ops::Nonlinearity::Silu) {
    throw unsupported(reader, "hidden_act",
                      "activation '" + reader.text("hidden_act") + "' is not implemented")
        .need("silu");
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
  c.attention_dropout = read_dropout(reader, "attention_dropout");
  c.mlp_bias = kind.has_mlp_bias_key && reader.boolean("mlp_bias", false);
  c.qk_norm = kind.qk_norm;

  c.rope = read_rope(reader, c, {.theta = kind.rope_theta});
  bound_generation(c, c.rope);
  read_windows(reader, c);
  if (kind.experts) c.experts = read_experts(reader, c, *kind.experts);
  return c;
}

}  // namespace tessera::models
