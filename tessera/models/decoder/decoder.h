// Describes a decoder of nn::TransformerBlocks: what its layers are, and what files call them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/models/common/model_config.h"
#include "tessera/nn/alibi.h"
#include "tessera/nn/layer_inputs.h"
#include "tessera/nn/norm.h"
#include "tessera/nn/rotary_embedding.h"
#include "tessera/nn/transformer_block.h"

namespace tessera::models {

// A table of learned positions, of which row p + first is added to the embedding of the token at position p.
struct LearnedPositions {
  std::string name;  // of the module, a child of the body
  int64_t rows = 0, first = 0;
};

struct Decoder {
  std::vector<nn::TransformerBlockOptions> blocks;  // one for each layer
  // The rotary positions that AttentionOptions::rotary counts.
  std::vector<nn::RopeOptions> ropes;
  std::optional<LearnedPositions> positions;
  std::optional<nn::AlibiOptions> alibi;  // of the blocks that have AttentionOptions::has_key_bias
  // The options of all blocks have the same. The rows of the table are multiplied by `layer_table_scale`,
  // as the embedding is by its scale.
  std::optional<nn::LayerInputsOptions> layer_inputs;
  double layer_table_scale = 1.0;
  nn::NormOptions norm;  // the last one, and that of the embedding
  // Multiplies the embedding; in the type of the hidden states if `rounds_embedding_scale`.
  double embedding_scale = 1.0;
  bool rounds_embedding_scale = false;
  double embedding_dropout = 0.0;  // probability of dropout, in training, of what the first layer reads
  // The layer of a classifier of tokens is `classifier`, and not `score`.
  bool has_named_classifier = false;
  double logit_scale = 1.0, logit_soft_cap = 0.0;  // nn::OutputHead::set_logits()
  // Names of the modules in the family's files. The first four lie below `body`. A norm without a name does
  // not exist.
  std::string embedding = "embed_tokens", layers = "layers", final_norm = "norm", embedding_norm = {};
  std::string body = "model", head = "lm_head";
  // Number of layers behind the last one that files may hold and the model leaves out: those that predict
  // further tokens.
  int64_t unread_layers = 0;
  // Endings of the names of tensors that files may hold and the model leaves out: buffers of old versions.
  std::vector<std::string> unread_endings = {};
  // A module beside the body that files may hold and the model leaves out; empty: there is none.
  std::string unread_module = {};
};

// The configuration of a family that reads its config.json into a description.
struct DecoderConfig : ModelConfig {
  // Files hold the weights of the experts one by one, or, as Transformers has them in memory, those of a
  // layer in two tensors.
  std::shared_ptr<const ModelConfig> in_form_of(const checkpoint::StoredTensors& files) const override;
  std::shared_ptr<const ModelConfig> with_joined_experts() const override;

  Decoder decoder;
};

}  // namespace tessera::models
