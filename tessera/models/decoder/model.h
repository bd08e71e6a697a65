// The model that a Decoder describes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/models/common/causal_lm.h"
#include "tessera/models/decoder/decoder.h"
#include "tessera/nn/dropout.h"
#include "tessera/nn/output_head.h"

namespace tessera::models {

// A model with tied embeddings has no output projection of its own, but reads the embedding's weight; a
// classifier has the layer `score` in its place, or, of tokens, the family's own.
class DecoderForCausalLM : public CausalLM {
 public:
  // Keeps what every family has of `config`.
  DecoderForCausalLM(const ModelConfig& config, const Decoder& decoder, at::ScalarType dtype);

  const ModelConfig& config() const override { return config_; }
  std::string body_name() const override { return decoder_.body; }
  std::vector<TiedParameter> tied_parameters() const override;
  at::Tensor embed(const at::Tensor& input_ids, const at::Tensor& position_ids,
                   const at::Tensor& type_ids) override;
  at::Tensor add_inputs(nn::SequenceContext& context, const at::Tensor& input_ids,
                        const at::Tensor& x) const override;
  bool ignores_tensor(const std::string& name) const override;
  void add_positions(nn::SequenceContext& context, const at::Tensor& position_ids) const override;
  const std::vector<std::shared_ptr<nn::TransformerBlock>>& blocks() const override { return blocks_; }
  nn::TaskHead& head() const override { return *head_; }
  std::vector<std::shared_ptr<nn::Embedding>> embeddings() const override;

 private:
  const ModelConfig config_;
  Decoder decoder_;
  // Returns the head of a language model behind this norm, which may be null.
  std::shared_ptr<nn::OutputHead> make_output_head(const std::shared_ptr<nn::Norm>& norm,
                                                   at::ScalarType dtype);

  // Multiplies rows of a table by a number, which may be rounded as the option says.
  at::Tensor scaled(const at::Tensor& rows, double scale) const;

  // The last two are null without learned positions, and without embeddings of layers.
  std::shared_ptr<nn::Embedding> embedding_, positions_, layer_table_;
  std::shared_ptr<nn::LayerInputs> layer_inputs_;  // null without them
  size_t num_shared_keys_ = 0;
  std::shared_ptr<nn::Norm> embedding_norm_;        // null without one
  std::shared_ptr<nn::Dropout> embedding_dropout_;  // null without one
  std::unique_ptr<nn::Alibi> alibi_;                // null without biases
  std::vector<std::shared_ptr<nn::TransformerBlock>> blocks_;
  std::shared_ptr<nn::TaskHead> head_;
  std::vector<std::unique_ptr<nn::RotaryEmbedding>> ropes_;
};

}  // namespace tessera::models
