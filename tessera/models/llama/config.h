// config.json of the Llama family: Llama, Mistral, Mixtral, Qwen2, Qwen3, Qwen3-MoE and models that share
// their model_type.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/io/json_reader.h"
#include "tessera/models/common/model_config.h"
#include "tessera/models/decoder/decoder.h"
#include "tessera/models/decoder/read_experts.h"
#include "tessera/models/llama/kind.h"
#include "tessera/nn/rotary_embedding.h"

namespace tessera::models {

struct LlamaConfig : ModelConfig {
  std::shared_ptr<const ModelConfig> with_joined_experts() const override;

  double rms_norm_eps = 1e-6;
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  double attention_dropout = 0.0;  // of attention's probabilities, in training
  // The window of each layer's attention (ops::AttentionFormula), 0 = none; empty if no layer has one.
  std::vector<int64_t> windows;
  nn::RopeOptions rope;
  ExpertLayers experts;
  bool has_joined_experts = false;

  const LlamaKind& kind() const { return llama_kind(model_type); }
};

// Reads and validates a config.json. Throws Error(Model, "CONFIG") naming file and key for a missing or bad
// value, and Error(Model, "UNSUPPORTED") for a feature that is not implemented and without which results
// would be wrong.
LlamaConfig read_llama_config(const io::JsonReader& reader);

// Describes the model of a config.
Decoder llama_decoder(const LlamaConfig& config);

}  // namespace tessera::models
