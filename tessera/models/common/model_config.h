// The configuration that every model has.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/core/classification.h"
#include "tessera/core/dtype.h"

namespace tessera::checkpoint {
class StoredTensors;
}

namespace tessera::models {

// The longest sequence that a model takes.
struct LengthBound {
  int64_t tokens = 0;
  std::string reason;  // why longer ones are refused, for the error message
};

// Sizes and facts common to all families; a family's own config derives from it.
struct ModelConfig {
  virtual ~ModelConfig() = default;

  // Returns the config of the same model in the form in which these files hold it; null if that is the form
  // of this config.
  virtual std::shared_ptr<const ModelConfig> in_form_of(const checkpoint::StoredTensors&) const { return {}; }

  // Returns the config of the same model with one projection for the gate and up of an expert, as
  // Transformers has it in memory; null if that is the form of this config, or its layers have no such
  // experts.
  virtual std::shared_ptr<const ModelConfig> with_joined_experts() const { return {}; }

  std::string model_type;
  // The model is the text part of a multimodal one, whose config.json holds these values in `text_config`.
  bool is_text_part = false;
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
  bool has_head_bias = false;  // the output projection has a bias, or a decoder's classifier of tokens
  // Number of experts of each layer that has them, and how many of them a token takes; 0 if no layer has any.
  int64_t num_experts = 0, experts_per_token = 0;
  // Weight of the routers' balance loss (nn::RouterBalance); 0 = no such loss.
  double router_aux_loss_coef = 0.0;
  std::optional<int64_t> bos_token_id, pad_token_id;
  // The pad token's row of the embedding is trained by lookups too. In most of Transformers' families it is
  // not (padding_idx), which counts where texts contain that token.
  bool trains_pad_row = false;
  std::vector<int64_t> eos_token_ids;
  // Attention sees both sides of a token, so that nothing can be generated; a classifier reads the first
  // token of a text, and the last one otherwise.
  bool is_encoder = false;
  // The model makes a target of a source (models/encoder_decoder/); num_layers are those of both stacks.
  // Targets begin with the token decoder_start_token_id.
  bool is_encoder_decoder = false;
  int64_t decoder_start_token_id = 0;
  // The head is a classifier's, of whole texts (Transformers' *ForSequenceClassification) or of tokens
  // (*ForTokenClassification); nothing: it tells the next token.
  std::optional<Classification> classification;
  // Returns the token whose row of the embedding lookups do not train.
  std::optional<int64_t> fixed_row() const {
    return trains_pad_row || pad_token_id >= vocab_size ? std::nullopt : pad_token_id;
  }
  // Tells whether the head is that of a classifier of tokens.
  bool tells_tokens() const { return classification && classification->of_tokens(); }
  // Probability of dropout, in training, of what a decoder's classifier of tokens reads.
  double classifier_dropout = 0.1;
  // The head is that of a masked language model (Transformers' *ForMaskedLM), which tells the tokens that
  // were masked. Of encoders alone.
  bool is_masked_lm = false;
  // Each layer has an embedding of the tokens of its own (nn::LayerInputs).
  bool has_layer_inputs = false;
  // Some layers read the keys and values of earlier ones.
  bool shares_keys = false;
  // Tells whether blocks read more than the result of the block before.
  bool reads_far() const { return has_layer_inputs || shares_keys; }
  // The type that config.json names for the weights (`dtype` or `torch_dtype`), if any.
  std::optional<DType> stored_dtype;

  // The longest document that the model can take; nothing if documents may have any length.
  std::optional<LengthBound> document_bound;
  // The longest sequence, prompt and answer, that it can generate with a cache; nothing if there is no bound.
  std::optional<LengthBound> generation_bound;

  // A sentence that the user of a training run should read beforehand; may be empty.
  std::string training_note;

  // Path of the config.json, for errors.
  std::string source_file;
};

}  // namespace tessera::models
