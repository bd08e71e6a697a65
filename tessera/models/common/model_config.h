// What every causal language model says about itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/core/dtype.h"

namespace tessera::models {

struct LengthBound {
  int64_t tokens = 0;
  std::string reason;  // for the error: what lies beyond it
};

// Sizes and facts common to all families; a family's own config derives from it.
struct ModelConfig {
  virtual ~ModelConfig() = default;

  std::string model_type;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 0;
  // Standard deviation of random initial weights.
  double initializer_range = 0.02;
  bool tie_word_embeddings = false;
  // Of each layer that has experts; 0: none has.
  int64_t num_experts = 0, experts_per_token = 0;
  // nn::RouterBalance; 0: the loss does not ask for a balance.
  double router_aux_loss_coef = 0.0;
  std::optional<int64_t> bos_token_id, pad_token_id;
  std::vector<int64_t> eos_token_ids;
  // The type that the config names for the weights (`dtype` or `torch_dtype`), if any.
  std::optional<DType> stored_dtype;

  // The longest document that the model can take, where there is one.
  std::optional<LengthBound> document_bound;
  // The same for a sequence that is generated with a cache.
  std::optional<LengthBound> generation_bound;

  // What the user of a training run should know beforehand; may be empty.
  std::string training_note;

  // The config.json, for errors.
  std::string source_file;
};

}  // namespace tessera::models
