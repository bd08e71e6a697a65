// Describes a decoder of nn::TransformerBlocks: what its layers are, and what files call them.
#pragma once

#include <string>
#include <vector>

#include "tessera/models/common/model_config.h"
#include "tessera/nn/norm.h"
#include "tessera/nn/rotary_embedding.h"
#include "tessera/nn/transformer_block.h"

namespace tessera::models {

struct Decoder {
  std::vector<nn::TransformerBlockOptions> blocks;  // one for each layer
  // The rotary positions that AttentionOptions::rotary counts.
  std::vector<nn::RopeOptions> ropes;
  nn::NormOptions norm;  // the last one
  // Multiplies the embedding; in the type of the hidden states if `rounds_embedding_scale`.
  double embedding_scale = 1.0;
  bool rounds_embedding_scale = false;
  double logit_scale = 1.0, logit_soft_cap = 0.0;  // nn::OutputHead::set_logits()
  // Names of the modules in the family's files. The first three are children of `body`.
  std::string embedding = "embed_tokens", layers = "layers", final_norm = "norm";
  std::string body = "model", head = "lm_head";
  // Number of layers behind the last one that files may hold and the model leaves out: those that predict
  // further tokens.
  int64_t unread_layers = 0;
};

// The configuration of a family that reads its config.json into a description.
struct DecoderConfig : ModelConfig {
  Decoder decoder;
};

}  // namespace tessera::models
