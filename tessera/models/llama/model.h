// Llama and the families that share its shape, with or without experts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/models/common/causal_lm.h"
#include "tessera/models/llama/config.h"
#include "tessera/nn/embedding.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/rms_norm.h"
#include "tessera/nn/rotary_embedding.h"
#include "tessera/nn/transformer_block.h"

namespace tessera::models {

// The part of the model that Hugging Face files call `model`: embedding, layers and the final norm.
class LlamaModel : public torch::nn::Module {
 public:
  LlamaModel(const LlamaConfig& config, at::ScalarType dtype);

  std::shared_ptr<nn::Embedding> embed_tokens;
  std::vector<std::shared_ptr<nn::Block>> layers;
  std::shared_ptr<nn::RMSNorm> norm;
};

// Llama with its output projection. With tied embeddings there is no lm_head: the projection then reads the
// embedding's weight.
class LlamaForCausalLM : public CausalLM {
 public:
  LlamaForCausalLM(const LlamaConfig& config, at::ScalarType dtype);

  const LlamaConfig& config() const override { return config_; }
  std::string body_name() const override { return "model"; }
  std::vector<TiedParameter> tied_parameters() const override;
  at::Tensor embed(const at::Tensor& input_ids, const at::Tensor& position_ids) override;
  void add_positions(nn::SequenceContext& context, const at::Tensor& position_ids) const override;
  const std::vector<std::shared_ptr<nn::Block>>& blocks() const override { return model->layers; }
  nn::OutputHead& head() const override { return *head_; }
  std::vector<std::shared_ptr<nn::Embedding>> embeddings() const override { return {model->embed_tokens}; }

  std::shared_ptr<LlamaModel> model;
  std::shared_ptr<nn::Linear> lm_head;  // null with tied embeddings

 private:
  LlamaConfig config_;
  std::shared_ptr<nn::OutputHead> head_;
  nn::RotaryEmbedding rotary_;
};

}  // namespace tessera::models
