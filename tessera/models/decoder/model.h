// The model that a Decoder describes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/models/common/causal_lm.h"
#include "tessera/models/decoder/decoder.h"
#include "tessera/nn/linear.h"

namespace tessera::models {

// A model with tied embeddings has no output projection of its own, but reads the embedding's weight.
class DecoderForCausalLM : public CausalLM {
 public:
  // Keeps what every family has of `config`.
  DecoderForCausalLM(const ModelConfig& config, const Decoder& decoder, at::ScalarType dtype);

  const ModelConfig& config() const override { return config_; }
  std::string body_name() const override { return decoder_.body; }
  std::vector<TiedParameter> tied_parameters() const override;
  at::Tensor embed(const at::Tensor& input_ids, const at::Tensor& position_ids) override;
  bool ignores_tensor(const std::string& name) const override;
  void add_positions(nn::SequenceContext& context, const at::Tensor& position_ids) const override;
  const std::vector<std::shared_ptr<nn::Block>>& blocks() const override { return blocks_; }
  nn::OutputHead& head() const override { return *head_; }
  std::vector<std::shared_ptr<nn::Embedding>> embeddings() const override { return {embedding_}; }

 private:
  const ModelConfig config_;
  Decoder decoder_;
  std::shared_ptr<nn::Embedding> embedding_;
  std::vector<std::shared_ptr<nn::Block>> blocks_;
  std::shared_ptr<nn::OutputHead> head_;
  std::vector<std::unique_ptr<nn::RotaryEmbedding>> ropes_;
};

}  // namespace tessera::models
