// The model that an EncoderDecoder describes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/models/common/causal_lm.h"
#include "tessera/models/encoder_decoder/encoder_decoder.h"
#include "tessera/nn/dropout.h"
#include "tessera/nn/embedding.h"
#include "tessera/nn/relative_bias.h"

namespace tessera::models {

// A document of its line is a source followed by a target (nn::DocumentSides), which begins with
// ModelConfig::decoder_start_token_id. Its blocks are those of the encoder, then those of the decoder; each
// changes the rows of its side, and the decoder's read those of the sources, too. The head's logits mean
// something in the rows of targets alone.
//
// The final norm of the encoder and a table of biases that several blocks read belong to no block.
class EncoderDecoderLM : public CausalLM {
 public:
  EncoderDecoderLM(const EncoderDecoderConfig& config, at::ScalarType dtype);

  const ModelConfig& config() const override { return config_; }
  // No child holds all but the head.
  std::string body_name() const override { return ""; }
  std::vector<TiedParameter> tied_parameters() const override;
  at::Tensor embed(const at::Tensor& input_ids, const at::Tensor& position_ids,
                   const at::Tensor& type_ids) override;
  const std::vector<std::shared_ptr<nn::TransformerBlock>>& blocks() const override { return blocks_; }
  nn::TaskHead& head() const override { return *head_; }
  std::vector<std::shared_ptr<nn::Embedding>> embeddings() const override { return {embedding_}; }
  std::vector<checkpoint::StoredPart> stored_parts(const std::string& name, const at::Tensor& parameter,
                                                   const checkpoint::LayerParts& layers) const override;
  bool ignores_tensor(const std::string& name) const override;

 private:
  // Adds the blocks of a stack and its tables; returns its final norm.
  std::shared_ptr<nn::Norm> add_stack(const Stack& stack, at::ScalarType dtype);

  const EncoderDecoderConfig config_;
  std::shared_ptr<nn::Embedding> embedding_;
  std::shared_ptr<nn::Dropout> embedding_dropout_;  // null without one
  std::vector<std::shared_ptr<nn::TransformerBlock>> blocks_;
  std::shared_ptr<nn::TaskHead> head_;
  std::map<std::string, std::string> stored_names_;  // of the tables of biases, by parameter
};

}  // namespace tessera::models
