// Describes an encoder-decoder of nn::TransformerBlocks with relative positions, and what files call its
// parts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/models/common/model_config.h"
#include "tessera/nn/norm.h"
#include "tessera/nn/relative_bias.h"
#include "tessera/nn/transformer_block.h"

namespace tessera::models {

// One of the two stacks. Its first layer holds its table of biases in files, and all layers read it, unless
// each layer has a table of its own.
struct Stack {
  std::vector<nn::TransformerBlockOptions> blocks;
  nn::DistanceBuckets buckets;
  std::string body;  // "encoder"
  bool has_bias_per_block = false;
};

// Names are those of the modules in the family's files.
struct EncoderDecoder {
  Stack encoder, decoder;
  nn::NormOptions norm;  // behind each stack
  double logit_scale = 1.0;
  // Probability of dropout, in training, of what the stacks read and give; that of the branches stands in
  // their options.
  double dropout = 0.0;
  std::string embedding = "shared", layers = "block", final_norm = "final_layer_norm", head = "lm_head",
              stack_embedding = "embed_tokens", bias = "relative_attention_bias";
};

// The configuration of a family that reads its config.json into a description.
struct EncoderDecoderConfig : ModelConfig {
  // Files without an output projection tie it to the embedding, whatever config.json says, as in
  // Transformers.
  std::shared_ptr<const ModelConfig> in_form_of(const checkpoint::StoredTensors& files) const override;

  EncoderDecoder parts;
};

}  // namespace tessera::models
