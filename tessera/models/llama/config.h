// config.json of the Llama family: Llama, Mistral, Qwen2, Qwen3 and what shares their model_type.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/io/json_reader.h"
#include "tessera/models/common/model_config.h"
#include "tessera/nn/rotary_embedding.h"

namespace tessera::models {

struct LlamaConfig : ModelConfig {
  double rms_norm_eps = 1e-6;
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  // The window of each layer's attention (ops::AttentionFormula); empty: none has one.
  std::vector<int64_t> windows;
  nn::RopeOptions rope;
};

// Reads and validates. Throws Error(Model, "CONFIG") naming file and key for a missing or bad value, and
// Error(Model, "UNSUPPORTED") for a feature that the model would compute wrongly without.
LlamaConfig read_llama_config(const io::JsonReader& reader);

}  // namespace tessera::models
