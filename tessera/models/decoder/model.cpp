#include "tessera/models/decoder/model.h"

#include <ATen/ATen.h>

#include "tessera/checkpoint/whole_model.h"
#include "tessera/device/device.h"
#include "tessera/nn/call_hook.h"

namespace tessera::models {

DecoderForCausalLM::DecoderForCausalLM(const ModelConfig& config, const Decoder& decoder,
                                       at::ScalarType dtype)
    : config_(config), decoder_(decoder) {
  if (config.is_text_part) decoder_.body = checkpoint::kTextBody;
  // Bare modules serve as the body and its list of layers: only their children's names matter.
  const auto body =
      nn::register_below(*this, decoder_.body, std::make_shared<torch::nn::Module>(decoder_.body));
  embedding_ = body->register_module(
      decoder.embedding, std::make_shared<nn::Embedding>(config.vocab_size, config.hidden_size, dtype));
  const auto list =
      body->register_module(decoder.layers, std::make_shared<torch::nn::Module>(decoder.layers));
  for (const nn::TransformerBlockOptions& options : decoder.blocks) {
    const auto layer = std::ssize(blocks_);
    blocks_.push_back(list->register_module(std::to_string(layer),
                                            std::make_shared<nn::TransformerBlock>(options, layer, dtype)));
  }
  const auto norm =
      body->register_module(decoder.final_norm, nn::make_norm(config.hidden_size, decoder.norm, dtype));
  for (const nn::RopeOptions& rope : decoder.ropes) {
    ropes_.push_back(std::make_unique<nn::RotaryEmbedding>(rope));
  }
  if (config.tie_word_embeddings) {
    head_ = std::make_shared<nn::OutputHead>(norm, embedding_);
  } else {
    const auto projection = register_module(
        decoder.head, std::make_shared<nn::Linear>(config.hidden_size, config.vocab_size, false, dtype));
    projection->refuse_adapter(
        "is computed together with the loss; list it in lora_modules_to_save to train it whole");
    head_ = std::make_shared<nn::OutputHead>(norm, projection->weight);
  }
  head_->set_logits(decoder.logit_scale, decoder.logit_soft_cap);
}

std::vector<TiedParameter> DecoderForCausalLM::tied_parameters() const {
  if (!config_.tie_word_embeddings) return {};
  return {{decoder_.head + ".weight", decoder_.body + "." + decoder_.embedding + ".weight"}};
}

at::Tensor DecoderForCausalLM::embed(const at::Tensor& input_ids, const at::Tensor&) {
  const at::Tensor rows = nn::call(*embedding_, input_ids).to(hidden_type());
  if (decoder_.embedding_scale == 1.0) return rows;
  if (!decoder_.rounds_embedding_scale) return rows * decoder_.embedding_scale;
  const at::Tensor scale = at::scalar_tensor(decoder_.embedding_scale, on_host(hidden_type()));
  return rows * scale.item<double>();
}

bool DecoderForCausalLM::ignores_tensor(const std::string& name) const {
  for (int64_t i = 0; i < decoder_.unread_layers; ++i) {
    const std::string layer = std::to_string(config_.num_layers + i);
    if (name.starts_with(decoder_.body + "." + decoder_.layers + "." + layer + ".")) return true;
  }
  return CausalLM::ignores_tensor(name);
}

void DecoderForCausalLM::add_positions(nn::SequenceContext& context, const at::Tensor& position_ids) const {
  for (const auto& rope : ropes_) {
    context.rotary.push_back(rope->table(position_ids, context.document_starts, hidden_type(), context.part));
  }
}

}  // namespace tessera::models
