// Reads the keys of config.json that most decoders have, into a description with Llama's parts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/io/json_reader.h"
#include "tessera/models/decoder/decoder.h"

namespace tessera::models {

// The names of the keys of a model's sizes. The common names are read where these are absent.
struct SizeKeys {
  const char* hidden = "hidden_size";
  const char* layers = "num_hidden_layers";
  const char* heads = "num_attention_heads";
  const char* positions = "max_position_embeddings";
};

// The defaults of a family's configuration class, and the names of its keys that differ.
struct DecoderDefaults {
  SizeKeys keys = {};
  int64_t max_position_embeddings = 2048;
  std::optional<int64_t> head_dim;                   // nothing: hidden_size / num_attention_heads
  std::optional<int64_t> kv_heads;                   // nothing: num_attention_heads
  const char* kv_heads_key = "num_key_value_heads";  // null: there is no such key
  double initializer_range = 0.02, norm_eps = 1e-6;
  bool is_tied = false;
  const char* initializer_key = "initializer_range";
  const char* norm_eps_key = "rms_norm_eps";  // null: there is no such key, and so below
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
  const char* intermediate_key = "intermediate_size";
  // An absent key means a multiple of hidden_size, or this size; 0: it must be there.
  int64_t intermediate_multiple = 0, intermediate_size = 0;
  std::optional<int64_t> pad_token;
};

// Reads the sizes of a model, its initial values, whether its embeddings are tied, and the bound of what it
// generates. Throws Error(Model, "CONFIG").
void read_sizes(const io::JsonReader& reader, ModelConfig& config, const DecoderDefaults& defaults);

// Reads read_common() and read_sizes(), and describes blocks with Llama's norms, names and gated MLP, whose
// activation the family's key names. The family changes what differs. There are no rotary positions yet.
DecoderConfig read_decoder(const io::JsonReader& reader, const DecoderDefaults& defaults);

// Reads the same, with LayerNorms in the place of Llama's norms.
DecoderConfig read_with_layer_norms(const io::JsonReader& reader, const DecoderDefaults& defaults);

// Reads the activation of the MLPs. Throws Error(Model, "UNSUPPORTED") for one that is not implemented.
ops::Nonlinearity read_activation(const io::JsonReader& reader, const std::string& key,
                                  const std::string& fallback);

// Returns the activation of this name, which `key` gives. Throws the same.
ops::Nonlinearity find_activation(const io::JsonReader& reader, const std::string& key,
                                  const std::string& name);

// Reads a list of the types of all layers, which is empty where the key is absent. Throws Error(Model,
// "CONFIG") for a list of another length.
std::vector<std::string> read_layer_types(const io::JsonReader& reader, const ModelConfig& config,
                                          const std::string& key);

// Returns for each layer whether it is of the type `other` and not of "full_attention": as `layer_types`
// says, or else as `is_other(layer)` does. Throws Error(Model) for a list of another length, or other types.
std::vector<bool> read_other_layers(const io::JsonReader& reader, const ModelConfig& config,
                                    const std::string& other,
                                    const std::function<bool(int64_t layer)>& is_other);
// Returns for each layer whether its attention has a window, in the same way: the type is
// "sliding_attention".
std::vector<bool> read_sliding_layers(const io::JsonReader& reader, const ModelConfig& config,
                                      const std::function<bool(int64_t layer)>& slides);

// Gives the blocks and the end of the model these norms.
void set_norms(DecoderConfig& config, const nn::NormOptions& norm);

// Adds a bias to the output projection. Throws Error(Model, "UNSUPPORTED") if embeddings are tied.
void set_head_bias(const io::JsonReader& reader, DecoderConfig& config);

// Sets the biases of all blocks.
void set_biases(DecoderConfig& config, bool qkv, bool output, bool mlp);

// Gives the attention of these layers the window of the key `sliding_window`; none if that is null.
void set_windows(const io::JsonReader& reader, DecoderConfig& config, const std::vector<bool>& slides,
                 std::optional<int64_t> fallback);

// Rotates the queries and keys of all blocks by these positions.
void set_rope(DecoderConfig& config, const nn::RopeOptions& rope);

// Sets the probabilities of dropout, in training, of what the mixers and the MLPs of all blocks add; one
// probability is that of both.
void set_dropouts(DecoderConfig& config, double mixer, double mlp);
inline void set_dropouts(DecoderConfig& config, double both) { set_dropouts(config, both, both); }

// Does so for attention's probabilities, for which read_decoder() reads the key `attention_dropout`.
void set_attention_dropout(DecoderConfig& config, double probability);

// Returns the probability of the key `hidden_dropout`, 0 by default, and gives it to a classifier of tokens
// that has none of its own.
double read_hidden_dropout(const io::JsonReader& reader, DecoderConfig& config);

// Notes that the dropout of this key is not applied in training, where it is not 0.
void note_dropout(const io::JsonReader& reader, ModelConfig& config, const std::string& key);

}  // namespace tessera::models
