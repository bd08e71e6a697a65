// config.json of GPT-2.
#pragma once

#include "tessera/io/json_reader.h"
#include "tessera/models/common/model_config.h"
#include "tessera/ops/mlp_activation.h"

namespace tessera::models {

struct Gpt2Config : ModelConfig {
  double layer_norm_eps = 1e-5;
  ops::Nonlinearity activation = ops::Nonlinearity::GeluTanh;
  double embedding_dropout = 0.1, residual_dropout = 0.1, attention_dropout = 0.1;  // in training
  bool scales_scores = true;            // attention scores are multiplied by 1 / sqrt(head_dim)
  bool scales_scores_by_layer = false;  // and by 1 / (layer + 1)
};

// Reads and validates a config.json, with the defaults of Transformers' GPT2Config. Throws Error(Model,
// "CONFIG") naming file and key for a missing or bad value, and Error(Model, "UNSUPPORTED") for a feature
// that is not implemented and without which results would be wrong.
Gpt2Config read_gpt2_config(const io::JsonReader& reader);

}  // namespace tessera::models
