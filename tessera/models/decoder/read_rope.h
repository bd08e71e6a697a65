// Reads the rotary positions of a decoder from its config.json.
#pragma once

#include <optional>
#include <string>

#include "tessera/io/json_reader.h"
#include "tessera/models/common/model_config.h"
#include "tessera/nn/rotary_embedding.h"

namespace tessera::models {

struct RopeDefaults {
  double theta = 10000.0, partial = 1.0;
  const char* theta_key = "rope_theta";  // null: there is no such key
  // The key of the model, beside that of `rope_parameters`, for the share of a head that is rotated; null:
  // heads are rotated whole.
  const char* partial_key = nullptr;
  // If not empty, `rope_parameters` may hold an object of this name for the layers in question.
  std::string layer_type = {};
  bool is_unscaled = false;  // nothing but that object scales the positions of these layers
  // The default of original_max_position_embeddings; nothing: max_position_embeddings.
  std::optional<int64_t> original_length = {};
  std::optional<int64_t> head_dim = {};  // of the layers in question; nothing: that of the model
  bool takes_proportional = false;       // the type `proportional` is known
};

// Returns the section of a config.json that describes rotary positions: `rope_scaling`, or else
// `rope_parameters`; nothing if there is neither.
std::optional<io::JsonReader> rope_section(const io::JsonReader& reader);

// Reads either form of the configuration: `rope_scaling` beside `rope_theta`, or `rope_parameters` that holds
// everything. `config` has its sizes. Throws Error(Model, "CONFIG"), and Error(Model, "UNSUPPORTED") for a
// type that is not implemented.
nn::RopeOptions read_rope(const io::JsonReader& reader, const ModelConfig& config,
                          const RopeDefaults& defaults = {});

// A family's YaRN scaling of positions, for files that do not give it.
struct YarnDefaults {
  double theta = 10000.0, factor = 1.0;
  int64_t original_length = 0;
};

// Does what read_rope() does for models of Mistral whose queries grow with their positions
// (`llama_4_scaling_beta`).
nn::RopeOptions read_mistral_rope(const io::JsonReader& reader, const ModelConfig& config,
                                  const YarnDefaults& absent, RopeDefaults defaults = {});

// Bounds what can be generated where frequencies depend on the length of the whole document: the keys in a
// cache, which were rotated by the frequencies of a shorter one, would be wrong beyond it.
void bound_generation(ModelConfig& config, const nn::RopeOptions& rope);

}  // namespace tessera::models
