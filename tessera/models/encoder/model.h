// The model that an Encoder describes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/models/common/causal_lm.h"
#include "tessera/models/encoder/encoder.h"
#include "tessera/nn/dropout.h"
#include "tessera/nn/embedding.h"

namespace tessera::models {

// An encoder with the head of its task. The hidden states behind its last layer are those of all tokens; a
// classifier of texts reads the first of each; a classifier of tokens and a masked language model tell
// something at each position.
class EncoderModel : public CausalLM {
 public:
  // Throws Error(Model, "TASK") for a config of neither head, and Error(Model, "UNSUPPORTED") for a masked
  // language model whose output projection is not the embedding.
  EncoderModel(const EncoderConfig& config, at::ScalarType dtype);

  const ModelConfig& config() const override { return config_; }
  std::string body_name() const override { return config_.encoder.body; }
  std::vector<TiedParameter> tied_parameters() const override;
  at::Tensor embed(const at::Tensor& input_ids, const at::Tensor& position_ids,
                   const at::Tensor& type_ids) override;
  void add_positions(nn::SequenceContext& context, const at::Tensor& position_ids) const override;
  const std::vector<std::shared_ptr<nn::TransformerBlock>>& blocks() const override { return blocks_; }
  nn::TaskHead& head() const override { return *head_; }
  std::vector<std::shared_ptr<nn::Embedding>> embeddings() const override;
  // Old files call the parameters of norms gamma and beta, and the bias of the projection may be a part of
  // it.
  std::vector<checkpoint::StoredPart> stored_parts(const std::string& name, const at::Tensor& parameter,
                                                   const checkpoint::LayerParts& layers) const override;
  bool ignores_tensor(const std::string& name) const override;

 private:
  // `norm`: that behind the last layer; null without one.
  std::shared_ptr<nn::TaskHead> make_classifier(const std::shared_ptr<nn::Norm>& norm, at::ScalarType dtype);
  std::shared_ptr<nn::TaskHead> make_masked_head(const std::shared_ptr<nn::Norm>& norm, at::ScalarType dtype);

  const EncoderConfig config_;
  std::shared_ptr<nn::Embedding> words_, positions_, types_;  // the last two may be null
  std::shared_ptr<nn::Norm> embedding_norm_;
  std::shared_ptr<nn::Dropout> embedding_dropout_;  // may be null
  std::vector<std::shared_ptr<nn::TransformerBlock>> blocks_;
  std::shared_ptr<nn::TaskHead> head_;
  std::vector<std::unique_ptr<nn::RotaryEmbedding>> ropes_;
};

}  // namespace tessera::models
