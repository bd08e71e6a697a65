#include "tessera/models/encoder_decoder/model.h"

#include <cmath>

#include <ATen/ATen.h>

#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/nn/call_hook.h"
#include "tessera/nn/output_head.h"

namespace tessera::models {
namespace {

// Sets the initial values of T5 (Raffel et al., arXiv 1910.10683, as Transformers has them): the standard
// deviation of a projection is the root of one over its inputs, and that of queries has that of a head's
// size, too, since scores are not scaled.
void set_initial_values(nn::TransformerBlock& block, int64_t head_dim) {
  const auto set = [](const std::shared_ptr<nn::Linear>& linear, int64_t inputs) {
    if (linear != nullptr) linear->set_initial_multiple(1.0 / std::sqrt(static_cast<double>(inputs)));
  };
  const auto set_attention = [&](auto& attention) {
    const int64_t hidden = attention.q_proj->in_features();
    set(attention.q_proj, hidden * head_dim);
    set(attention.k_proj, hidden);
    set(attention.v_proj, hidden);
    set(attention.o_proj, attention.o_proj->in_features());
  };
  set_attention(*block.attention);
  if (block.cross_attention != nullptr) set_attention(*block.cross_attention);
  for (const auto& linear : {block.mlp->gate_proj, block.mlp->up_proj, block.mlp->down_proj}) {
    if (linear != nullptr) set(linear, linear->in_features());
  }
}

}  // namespace

std::shared_ptr<const ModelConfig> EncoderDecoderConfig::in_form_of(
    const checkpoint::StoredTensors& files) const {
  if (tie_word_embeddings || files.find(parts.head + ".weight") != nullptr) return nullptr;
  const auto tied = std::make_shared<EncoderDecoderConfig>(*this);
  tied->tie_word_embeddings = true;
  return tied;
}

EncoderDecoderLM::EncoderDecoderLM(const EncoderDecoderConfig& config, at::ScalarType dtype)
    : config_(config) {
  const EncoderDecoder& parts = config_.parts;
  embedding_ = register_module(parts.embedding,
                               std::make_shared<nn::Embedding>(config.vocab_size, config.hidden_size, dtype));
  const auto add_dropout = [&](const char* name) {
    return nn::add_dropout(*this, name, parts.dropout, name);
  };
  embedding_dropout_ = add_dropout("embedding_dropout");
  const auto encoder_norm = add_stack(parts.encoder, dtype);
  blocks_.back()->set_last_norm(encoder_norm, add_dropout("encoder_dropout"));
  const auto decoder_norm = add_stack(parts.decoder, dtype);
  std::shared_ptr<nn::OutputHead> head;
  if (config.tie_word_embeddings) {
    head = std::make_shared<nn::OutputHead>(decoder_norm, embedding_);
  } else {
    const auto projection = register_module(
        parts.head, std::make_shared<nn::Linear>(config.hidden_size, config.vocab_size, false, dtype));
    projection->refuse_adapter(
        "is computed together with the loss; list it in lora_modules_to_save to train it whole");
    head = std::make_shared<nn::OutputHead>(decoder_norm, projection);
  }
  head->set_dropout(add_dropout("decoder_dropout"));
  head->set_logits(parts.logit_scale, 0.0);
  head_ = head;
}

std::shared_ptr<nn::Norm> EncoderDecoderLM::add_stack(const Stack& stack, at::ScalarType dtype) {
  const EncoderDecoder& parts = config_.parts;
  const std::string layers = stack.body + "." + parts.layers + ".";
  const auto add_bias = [&](const std::string& name) {
    return nn::relative_attention(nn::register_below(
        *this, name,
        std::make_shared<nn::RelativeBias>(stack.buckets, config_.num_heads,
                                           1.0 / std::sqrt(static_cast<double>(config_.hidden_size)),
                                           dtype)));
  };
  const auto own_name = [&](size_t layer) {
    return layers + std::to_string(layer) + "." + stack.blocks[layer].attention_name + "." + parts.bias;
  };
  std::shared_ptr<const nn::AttentionCore> shared;
  if (!stack.has_bias_per_block) {
    const std::string name = stack.body + "." + parts.bias;
    shared = add_bias(name);
    stored_names_[name + ".weight"] = own_name(0) + ".weight";
  }
  for (size_t i = 0; i < stack.blocks.size(); ++i) {
    // Two numbers of states for each layer: those of its two attentions.
    const auto block = nn::register_below(
        *this, layers + std::to_string(i),
        std::make_shared<nn::TransformerBlock>(stack.blocks[i], 2 * static_cast<int64_t>(i), dtype));
    block->attention->set_core(shared != nullptr ? shared : add_bias(own_name(i)));
    set_initial_values(*block, config_.head_dim);
    blocks_.push_back(block);
  }
  return nn::register_below(*this, stack.body + "." + parts.final_norm,
                            nn::make_norm(config_.hidden_size, parts.norm, dtype));
}

std::vector<TiedParameter> EncoderDecoderLM::tied_parameters() const {
  if (!config_.tie_word_embeddings) return {};
  return {{config_.parts.head + ".weight", config_.parts.embedding + ".weight"}};
}

at::Tensor EncoderDecoderLM::embed(const at::Tensor& input_ids, const at::Tensor&, const at::Tensor&) {
  const at::Tensor x = nn::call(*embedding_, input_ids).to(hidden_type());
  return embedding_dropout_ == nullptr ? x : embedding_dropout_->forward(x);
}

std::vector<checkpoint::StoredPart> EncoderDecoderLM::stored_parts(
    const std::string& name, const at::Tensor& parameter, const checkpoint::LayerParts& layers) const {
  const EncoderDecoder& parts = config_.parts;
  if (const auto found = stored_names_.find(name); found != stored_names_.end())
    return layers.of(parameter, found->second);
  auto stored = CausalLM::stored_parts(name, parameter, layers);
  if (name != parts.embedding + ".weight") return stored;
  for (const Stack* stack : {&parts.encoder, &parts.decoder})
    stored.front().aliases.push_back(stack->body + "." + parts.stack_embedding + ".weight");
  return stored;
}

bool EncoderDecoderLM::ignores_tensor(const std::string& name) const {
  // The first published files of T5 have biases of cross attention, which nothing reads.
  const std::string first = config_.parts.decoder.body + "." + config_.parts.layers + ".0.";
  return name.starts_with(first) && name.ends_with(config_.parts.decoder.blocks.front().cross_attention_name +
                                                   "." + config_.parts.bias + ".weight");
}

}  // namespace tessera::models
