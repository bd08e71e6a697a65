#include "tessera/models/decoder/read_sizes.h"

#include "tessera/models/common/read_config.h"
#include "tessera/models/decoder/read_rope.h"

namespace tessera::models {
namespace {

// Returns the name under which the file holds a size.
const char* key_of(const io::JsonReader& reader, const char* own, const char* common) {
  return reader.has(own) ? own : common;
}

void read_heads(const io::JsonReader& reader, ModelConfig& c, const DecoderDefaults& defaults) {
  const SizeKeys common;
  const char* const heads_key = key_of(reader, defaults.keys.heads, common.heads);
  c.num_heads = reader.integer(heads_key, 1, kMaxHeads);
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
    throw reader
        .problem(key_of(reader, defaults.keys.hidden, common.hidden),
                 std::string("not a multiple of ") + heads_key + ", and no head_dim is given")
        .got(std::to_string(c.hidden_size))
        .need("a multiple of " + std::to_string(c.num_heads));
  }
  c.head_dim = c.hidden_size / c.num_heads;
}

}  // namespace

void read_sizes(const io::JsonReader& reader, ModelConfig& c, const DecoderDefaults& defaults) {
  c.vocab_size = reader.integer("vocab_size", 1, kMaxSize);
  const SizeKeys common;
  const auto read = [&](const char* own, const char* name, int64_t most, std::optional<int64_t> fallback) {
    return reader.integer(key_of(reader, own, name), 1, most, fallback);
  };
  c.hidden_size = read(defaults.keys.hidden, common.hidden, kMaxSize, std::nullopt);
  const int64_t fallback = defaults.intermediate_multiple * c.hidden_size + defaults.intermediate_size;
  c.intermediate_size = reader.integer(defaults.intermediate_key, 1, kMaxSize,
                                       fallback == 0 ? std::nullopt : std::optional<int64_t>(fallback));
  c.num_layers = read(defaults.keys.layers, common.layers, kMaxLayers, std::nullopt);
  read_heads(reader, c, defaults);
  check_products(reader, c,
                 {{"vocab_size", c.vocab_size},
                  {defaults.intermediate_key, c.intermediate_size},
                  {"head_dim", c.num_heads * c.head_dim}});
  const char* const positions_key = key_of(reader, defaults.keys.positions, common.positions);
  c.max_position_embeddings = reader.integer(positions_key, 1, kMaxSize, defaults.max_position_embeddings);
  c.initializer_range = reader.number(defaults.initializer_key, 0.0, 1e3, defaults.initializer_range);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", defaults.is_tied);
  c.generation_bound = {c.max_position_embeddings,
                        std::string(positions_key) + " in its config.json is the limit"};
}

DecoderConfig read_decoder(const io::JsonReader& reader, const DecoderDefaults& defaults) {
  DecoderConfig c;
  read_common(reader, c);
  if (!reader.has("pad_token_id") && !reader.is_null("pad_token_id")) c.pad_token_id = defaults.pad_token;
  read_sizes(reader, c, defaults);
  nn::TransformerBlockOptions block;
  block.attention = {.hidden_size = c.hidden_size,
                     .num_heads = c.num_heads,
                     .num_kv_heads = c.num_kv_heads,
                     .head_dim = c.head_dim,
                     .dropout = read_dropout(reader, "attention_dropout")};
  block.mlp = {.hidden_size = c.hidden_size, .intermediate_size = c.intermediate_size};
  if (defaults.activation_key != nullptr)
    block.mlp.activation = read_activation(reader, defaults.activation_key, defaults.activation);
  c.decoder.norm.eps = defaults.norm_eps_key == nullptr
                           ? defaults.norm_eps
                           : reader.number(defaults.norm_eps_key, 0.0, 1.0, defaults.norm_eps);
  block.norm = c.decoder.norm;
  c.decoder.blocks.assign(static_cast<size_t>(c.num_layers), block);
  return c;
}

ops::Nonlinearity read_activation(const io::JsonReader& reader, const std::string& key,
                                  const std::string& fallback) {
  return find_activation(reader, key, reader.text(key, fallback));
}

ops::Nonlinearity find_activation(const io::JsonReader& reader, const std::string& key,
                                  const std::string& name) {
  using enum ops::Nonlinearity;
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

std::vector<bool> read_other_layers(const io::JsonReader& reader, const ModelConfig& config,
                                    const std::string& other,
                                    const std::function<bool(int64_t layer)>& is_other) {
  const auto types = read_layer_types(reader, config, "layer_types");
  std::vector<bool> others;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    if (types.empty()) {
      others.push_back(is_other(layer));
      continue;
    }
    const std::string& type = types[static_cast<size_t>(layer)];
    if (type != "full_attention" && type != other) {
      throw unsupported(reader, "layer_types", "layer type '" + type + "' is not implemented")
          .need("full_attention or " + other);
    }
    others.push_back(type == other);
  }
  return others;
}

std::vector<bool> read_sliding_layers(const io::JsonReader& reader, const ModelConfig& config,
                                      const std::function<bool(int64_t layer)>& slides) {
  return read_other_layers(reader, config, "sliding_attention", slides);
}

DecoderConfig read_with_layer_norms(const io::JsonReader& reader, const DecoderDefaults& defaults) {
  DecoderConfig config = read_decoder(reader, defaults);
  set_norms(config, {.kind = nn::NormOptions::Kind::Layer, .eps = config.decoder.norm.eps});
  return config;
}

void set_norms(DecoderConfig& config, const nn::NormOptions& norm) {
  config.decoder.norm = norm;
  for (nn::TransformerBlockOptions& block : config.decoder.blocks) block.norm = norm;
}

void set_head_bias(const io::JsonReader& reader, DecoderConfig& config) {
  config.has_head_bias = true;
  if (!config.tie_word_embeddings) return;
  throw unsupported(reader, "tie_word_embeddings", "an output projection with a bias is not tied")
      .need("false");
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

void set_dropouts(DecoderConfig& config, double mixer, double mlp) {
  for (auto& block : config.decoder.blocks) {
    block.mixer_dropout = mixer;
    block.mlp_dropout = mlp;
  }
}

void set_attention_dropout(DecoderConfig& config, double probability) {
  for (auto& block : config.decoder.blocks) block.attention.dropout = probability;
}

double read_hidden_dropout(const io::JsonReader& reader, DecoderConfig& config) {
  const double hidden = read_dropout(reader, "hidden_dropout");
  config.classifier_dropout = read_dropout(reader, "classifier_dropout", hidden);
  return hidden;
}

void note_dropout(const io::JsonReader& reader, ModelConfig& config, const std::string& key) {
  if (reader.number(key, 0.0, 1.0, 0.0) == 0.0) return;
  config.training_note = config.source_file + ": its dropout (" + key + ") is not applied in training";
}

}  // namespace tessera::models
