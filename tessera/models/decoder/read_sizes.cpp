#include "tessera/models/decoder/read_sizes.h"

#include "tessera/models/common/read_config.h"
#include "tessera/models/decoder/read_rope.h"

namespace tessera::models {
namespace {

void read_heads(const io::JsonReader& reader, ModelConfig& c, const DecoderDefaults& defaults) {
  c.num_heads = reader.integer("num_attention_heads", 1, kMaxHeads);
  const char* const key = defaults.kv_heads_key;
  c.num_kv_heads = defaults.kv_heads.value_or(c.num_heads);
  if (key != nullptr) {
    c.num_kv_heads = reader.integer(key, 1, kMaxHeads, reader.is_null(key) ? c.num_heads : c.num_kv_heads);
  }
  if (c.num_heads % c.num_kv_heads != 0) {
    throw reader.problem(key == nullptr ? "num_kv_heads" : key, "must divide num_attention_heads")
        .got(std::to_string(c.num_kv_heads))
        .need("a divisor of " + std::to_string(c.num_heads));
  }
  if (defaults.head_dim || reader.has("head_dim")) {
    c.head_dim = reader.integer("head_dim", 1, kMaxHeads, defaults.head_dim);
    return;
  }
  if (c.hidden_size % c.num_heads != 0) {
    throw reader.problem("hidden_size", "not a multiple of num_attention_heads, and no head_dim is given")
        .got(std::to_string(c.hidden_size))
        .need("a multiple of " + std::to_string(c.num_heads));
  }
  c.head_dim = c.hidden_size / c.num_heads;
}

}  // namespace

void read_sizes(const io::JsonReader& reader, ModelConfig& c, const DecoderDefaults& defaults) {
  c.vocab_size = reader.integer("vocab_size", 1, kMaxSize);
  c.hidden_size = reader.integer("hidden_size", 1, kMaxSize);
  const int64_t multiple = defaults.intermediate_multiple;
  c.intermediate_size =
      reader.integer(defaults.intermediate_key, 1, kMaxSize,
                     multiple == 0 ? std::nullopt : std::optional<int64_t>(multiple * c.hidden_size));
  c.num_layers = reader.integer("num_hidden_layers", 1, kMaxLayers);
  read_heads(reader, c, defaults);
  check_products(reader, c,
                 {{"vocab_size", c.vocab_size},
                  {defaults.intermediate_key, c.intermediate_size},
                  {"head_dim", c.num_heads * c.head_dim}});
  c.max_position_embeddings =
      reader.integer("max_position_embeddings", 1, kMaxSize, defaults.max_position_embeddings);
  c.initializer_range = reader.number("initializer_range", 0.0, 1e3, defaults.initializer_range);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", defaults.is_tied);
  c.generation_bound = {c.max_position_embeddings, "max_position_embeddings in its config.json is the limit"};
}

DecoderConfig read_decoder(const io::JsonReader& reader, const DecoderDefaults& defaults) {
  DecoderConfig c;
  read_common(reader, c);
  read_sizes(reader, c, defaults);
  note_dropout(reader, c, {"attention_dropout", "resid_pdrop", "embd_pdrop", "residual_dropout"});
  nn::TransformerBlockOptions block;
  block.attention = {.hidden_size = c.hidden_size,
                     .num_heads = c.num_heads,
                     .num_kv_heads = c.num_kv_heads,
                     .head_dim = c.head_dim};
  block.mlp = {.hidden_size = c.hidden_size,
               .intermediate_size = c.intermediate_size,
               .activation = read_activation(reader, defaults.activation_key, defaults.activation)};
  c.decoder.norm.eps = reader.number(defaults.norm_eps_key, 0.0, 1.0, defaults.norm_eps);
  block.norm = c.decoder.norm;
  c.decoder.blocks.assign(static_cast<size_t>(c.num_layers), block);
  return c;
}

ops::Nonlinearity read_activation(const io::JsonReader& reader, const std::string& key,
                                  const std::string& fallback) {
  using enum ops::Nonlinearity;
  const std::string name = reader.text(key, fallback);
  if (name == "silu" || name == "swish") return Silu;
  if (name == "gelu") return Gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return GeluTanh;
  if (name == "relu") return Relu;
  if (name == "relu2") return Relu2;
  throw unsupported(reader, key, "activation '" + name + "' is not implemented")
      .need("silu, gelu, gelu_new, gelu_pytorch_tanh, relu or relu2");
}

std::vector<std::string> read_layer_types(const io::JsonReader& reader, const ModelConfig& config,
                                          const std::string& key) {
  auto types = reader.texts(key);
  if (types.empty() || std::ssize(types) == config.num_layers) return types;
  throw reader.problem(key, "must name the type of every layer")
      .got(std::to_string(types.size()) + " types")
      .need(std::to_string(config.num_layers));
}

std::vector<bool> read_sliding_layers(const io::JsonReader& reader, const ModelConfig& config,
                                      const std::function<bool(int64_t layer)>& slides) {
  const auto types = read_layer_types(reader, config, "layer_types");
  std::vector<bool> sliding;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    if (types.empty()) {
      sliding.push_back(slides(layer));
      continue;
    }
    const std::string& type = types[static_cast<size_t>(layer)];
    if (type != "full_attention" && type != "sliding_attention") {
      throw unsupported(reader, "layer_types", "layer type '" + type + "' is not implemented")
          .need("full_attention or sliding_attention");
    }
    sliding.push_back(type == "sliding_attention");
  }
  return sliding;
}

void set_biases(DecoderConfig& config, bool qkv, bool output, bool mlp) {
  for (nn::TransformerBlockOptions& block : config.decoder.blocks) {
    block.attention.qkv_bias = qkv;
    block.attention.output_bias = output;
    block.mlp.bias = mlp;
  }
}

void set_windows(const io::JsonReader& reader, DecoderConfig& config, const std::vector<bool>& slides,
                 std::optional<int64_t> fallback) {
  const auto given = reader.optional_integer("sliding_window", 1, kMaxSize);
  const int64_t window = given.value_or(reader.is_null("sliding_window") ? 0 : fallback.value_or(0));
  for (size_t layer = 0; layer < slides.size(); ++layer) {
    if (slides[layer]) config.decoder.blocks[layer].attention.window = window;
  }
}

void set_rope(DecoderConfig& config, const nn::RopeOptions& rope) {
  config.decoder.ropes = {rope};
  bound_generation(config, rope);
}

void note_dropout(const io::JsonReader& reader, ModelConfig& config, const std::vector<std::string>& keys,
                  double fallback) {
  for (const std::string& key : keys) {
    if (reader.number(key, 0.0, 1.0, fallback) == 0.0) continue;
    config.training_note = config.source_file + ": its dropout (" + key + ") is not applied in training";
  }
}

}  // namespace tessera::models
