// GPT-2: LayerNorm, learned positions, one projection for queries, keys and values, an MLP without a gate.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/models/common/causal_lm.h"
#include "tessera/models/gpt2/config.h"
#include "tessera/nn/dropout.h"
#include "tessera/nn/embedding.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/norm.h"

namespace tessera::models {

// The part of the model that Hugging Face files call `transformer`: embeddings, blocks and the final norm.
class Gpt2Model : public torch::nn::Module {
 public:
  Gpt2Model(const Gpt2Config& config, at::ScalarType dtype);

  std::shared_ptr<nn::Embedding> wte, wpe;               // embeddings of tokens and of positions
  std::shared_ptr<nn::Dropout> drop;                     // of their sum; null for a probability of 0
  std::vector<std::shared_ptr<nn::TransformerBlock>> h;  // the blocks
  std::shared_ptr<nn::Norm> ln_f;                        // the final norm
};

// GPT-2 with its output projection. It has no lm_head if the projection is tied to the embedding, as it is in
// all published models.
class Gpt2ForCausalLM : public CausalLM {
 public:
  Gpt2ForCausalLM(const Gpt2Config& config, at::ScalarType dtype);

  const Gpt2Config& config() const override { return config_; }
  std::string body_name() const override { return "transformer"; }
  std::vector<TiedParameter> tied_parameters() const override;
  bool ignores_tensor(const std::string& name) const override;
  at::Tensor embed(const at::Tensor& input_ids, const at::Tensor& position_ids,
                   const at::Tensor& type_ids) override;
  const std::vector<std::shared_ptr<nn::TransformerBlock>>& blocks() const override { return transformer->h; }
  nn::TaskHead& head() const override { return *head_; }
  std::vector<std::shared_ptr<nn::Embedding>> embeddings() const override {
    return {transformer->wte, transformer->wpe};
  }

  std::shared_ptr<Gpt2Model> transformer;
  std::shared_ptr<nn::Linear> lm_head;  // null where tied, and in a classifier

 private:
  Gpt2Config config_;
  std::shared_ptr<nn::TaskHead> head_;
};

}  // namespace tessera::models
