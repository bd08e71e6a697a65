// config.json of GPT-2.
#pragma once

#include "tessera/io/json_reader.h"
#include "tessera/models/common/model_config.h"
#include "tessera/ops/mlp_activation.h"

namespace tessera::models {

struct Gpt2Config : ModelConfig {
  double layer_norm_eps = 1e-5;
  ops::Nonlinearity activation = ops::Nonlinearity::GeluTanh;
  bool scales_scores = true;            // by 1 / sqrt(head_dim)
  bool scales_scores_by_layer = false;  // by 1 / (layer + 1) as well
};

// Reads and validates, with the defaults of Transformers' GPT2Config. Throws Error(Model, "CONFIG") naming
// file and key for a missing or bad value, and Error(Model, "UNSUPPORTED") for a feature that the model would
// compute wrongly without. The dropout that configs name acts in training alone, and is
// not applied there: training_note says so.
Gpt2Config read_gpt2_config(const io::JsonReader& reader);

}  // namespace tessera::models
