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

// The defaults of a family's configuration class, and the names of its keys that differ.
struct DecoderDefaults {
  int64_t max_position_embeddings = 2048;
  std::optional<int64_t> head_dim;                   // nothing: hidden_size / num_attention_heads
  std::optional<int64_t> kv_heads;                   // nothing: num_attention_heads
  const char* kv_heads_key = "num_key_value_heads";  // null: there is no such key
  double initializer_range = 0.02, norm_eps = 1e-6;
  bool is_tied = false;
  const char* norm_eps_key = "rms_norm_eps";
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
  const char* intermediate_key = "intermediate_size";
  int64_t intermediate_multiple = 0;  // of hidden_size, where the key is absent; 0: it must be there
};

// Reads the sizes of a model, its initial values, whether its embeddings are tied, and the bound of what it
// generates. Throws Error(Model, "CONFIG").
void read_sizes(const io::JsonReader& reader, ModelConfig& config, const DecoderDefaults& defaults);

// Reads read_common() and read_sizes(), and describes blocks with Llama's norms, names and gated MLP, whose
// activation the family's key names. The family changes what differs. There are no rotary positions yet.
DecoderConfig read_decoder(const io::JsonReader& reader, const DecoderDefaults& defaults);

// Reads the activation of the MLPs. Throws Error(Model, "UNSUPPORTED") for one that is not implemented.
ops::Nonlinearity read_activation(const io::JsonReader& reader, const std::string& key,
                                  const std::string& fallback);

// Reads a list of the types of all layers, which is empty where the key is absent. Throws Error(Model,
// "CONFIG") for a list of another length.
std::vector<std::string> read_layer_types(const io::JsonReader& reader, const ModelConfig& config,
                                          const std::string& key);

// Returns for each layer whether its attention has a window: as `layer_types` says, or else as
// `slides(layer)` does. Throws Error(Model) for a list of another length, or other types.
std::vector<bool> read_sliding_layers(const io::JsonReader& reader, const ModelConfig& config,
                                      const std::function<bool(int64_t layer)>& slides);

// Sets the biases of all blocks.
void set_biases(DecoderConfig& config, bool qkv, bool output, bool mlp);

// Gives the attention of these layers the window of the key `sliding_window`; none if that is null.
void set_windows(const io::JsonReader& reader, DecoderConfig& config, const std::vector<bool>& slides,
                 std::optional<int64_t> fallback);

// Rotates the queries and keys of all blocks by these positions.
void set_rope(DecoderConfig& config, const nn::RopeOptions& rope);

// Notes that the dropout of these keys is not applied in training, where one of them is not 0. `fallback` is
// the value of an absent key.
void note_dropout(const io::JsonReader& reader, ModelConfig& config, const std::vector<std::string>& keys,
                  double fallback = 0.0);

}  // namespace tessera::models
