#include "tessera/models/decoder/model.h"

#include <map>

#include <ATen/ATen.h>

#include "tessera/checkpoint/whole_model.h"
#include "tessera/device/device.h"
#include "tessera/models/common/score_head.h"
#include "tessera/nn/call_hook.h"

namespace tessera::models {

DecoderForCausalLM::DecoderForCausalLM(const ModelConfig& config, const Decoder& decoder,
                                       at::ScalarType dtype)
    : config_(config), decoder_(decoder) {
  if (config.is_text_part) decoder_.body = checkpoint::kTextBody;
  // Bare modules serve as the body and its list of layers: only their children's names matter.
  const auto body =
      nn::register_below(*this, decoder_.body, std::make_shared<torch::nn::Module>(decoder_.body));
  const auto add = [&](const std::string& name, const auto& module) {
    return nn::register_below(*body, name, module);
  };
  const auto add_norm = [&](const std::string& name) -> std::shared_ptr<nn::Norm> {
    return name.empty() ? nullptr : add(name, nn::make_norm(config.hidden_size, decoder.norm, dtype));
  };
  const auto add_table = [&](const std::string& name, int64_t rows, int64_t columns) {
    return add(name, std::make_shared<nn::Embedding>(rows, columns, dtype));
  };
  embedding_ = add_table(decoder.embedding, config.vocab_size, config.hidden_size);
  if (const auto row = config.fixed_row()) embedding_->set_fixed_row(*row);
  if (decoder.positions)
    positions_ = add_table(decoder.positions->name, decoder.positions->rows, config.hidden_size);
  if (decoder.layer_inputs) {
    const nn::LayerInputsOptions& o = *decoder.layer_inputs;
    layer_table_ = add_table(o.table, o.rows, o.num_layers * o.size);
    layer_table_->set_role(nn::ParameterRole::LayerTable);
    if (const auto row = config.fixed_row()) layer_table_->set_fixed_row(*row);
    layer_inputs_ = add("layer_inputs", std::make_shared<nn::LayerInputs>(*body, o, dtype));
  }
  embedding_norm_ = add_norm(decoder.embedding_norm);
  embedding_dropout_ = nn::add_dropout(*this, "embedding_dropout", decoder.embedding_dropout, "embeddings");
  const auto list = add(decoder.layers, std::make_shared<torch::nn::Module>(decoder.layers));
  int64_t num_attentions = 0, num_states = 0;
  std::map<int64_t, int64_t> givers;  // the numbers of the layers that give keys and values
  for (const nn::TransformerBlockOptions& options : decoder.blocks) {
    int64_t number = 0;
    if (!options.has_attention()) {
      number = num_states++;
    } else if (options.attention.reads_keys()) {
      number = givers.at(options.attention.shared_keys);
    } else {
      number = num_attentions++;
      if (options.attention.shared_keys >= 0) givers[options.attention.shared_keys] = number;
    }
    blocks_.push_back(list->register_module(std::to_string(blocks_.size()),
                                            std::make_shared<nn::TransformerBlock>(options, number, dtype)));
  }
  num_shared_keys_ = givers.size();
  const auto norm = add_norm(decoder.final_norm);
  for (const nn::RopeOptions& rope : decoder.ropes) {
    ropes_.push_back(std::make_unique<nn::RotaryEmbedding>(rope));
  }
  if (decoder.alibi) alibi_ = std::make_unique<nn::Alibi>(*decoder.alibi);
  if (config.classification) {
    head_ =
        make_score_head(*this, config, norm, decoder_.has_named_classifier ? "classifier" : "score", dtype);
  } else {
    head_ = make_output_head(norm, dtype);
  }
}

std::shared_ptr<nn::OutputHead> DecoderForCausalLM::make_output_head(const std::shared_ptr<nn::Norm>& norm,
                                                                     at::ScalarType dtype) {
  std::shared_ptr<nn::OutputHead> head;
  if (config_.tie_word_embeddings) {
    head = std::make_shared<nn::OutputHead>(norm, embedding_);
  } else {
    const auto projection = register_module(
        decoder_.head,
        std::make_shared<nn::Linear>(config_.hidden_size, config_.vocab_size, config_.has_head_bias, dtype));
    projection->refuse_adapter(
        "is computed together with the loss; list it in lora_modules_to_save to train it whole");
    head = std::make_shared<nn::OutputHead>(norm, projection);
    head->set_bias(projection->bias);
  }
  head->set_logits(decoder_.logit_scale, decoder_.logit_soft_cap);
  return head;
}

std::vector<std::shared_ptr<nn::Embedding>> DecoderForCausalLM::embeddings() const {
  std::vector<std::shared_ptr<nn::Embedding>> tables = {embedding_};
  for (const auto& table : {positions_, layer_table_}) {
    if (table != nullptr) tables.push_back(table);
  }
  return tables;
}

std::vector<TiedParameter> DecoderForCausalLM::tied_parameters() const {
  if (!config_.tie_word_embeddings || config_.classification) return {};
  return {{decoder_.head + ".weight", decoder_.body + "." + decoder_.embedding + ".weight"}};
}

at::Tensor DecoderForCausalLM::embed(const at::Tensor& input_ids, const at::Tensor& position_ids,
                                     const at::Tensor&) {
  at::Tensor rows = nn::call(*embedding_, input_ids).to(hidden_type());
  if (positions_ != nullptr)
    rows = rows + nn::call(*positions_, position_ids + decoder_.positions->first).to(hidden_type());
  if (embedding_norm_ != nullptr) rows = embedding_norm_->forward(rows);
  const at::Tensor x = scaled(rows, decoder_.embedding_scale);
  return embedding_dropout_ == nullptr ? x : embedding_dropout_->forward(x);
}

at::Tensor DecoderForCausalLM::scaled(const at::Tensor& rows, double scale) const {
  if (scale == 1.0) return rows;
  if (!decoder_.rounds_embedding_scale) return rows * scale;
  return rows * at::scalar_tensor(scale, on_host(hidden_type())).item<double>();
}

at::Tensor DecoderForCausalLM::add_inputs(nn::SequenceContext& context, const at::Tensor& input_ids,
                                          const at::Tensor& x) const {
  if (layer_inputs_ == nullptr) return x;
  const at::Tensor rows = nn::call(*layer_table_, input_ids).to(hidden_type());
  context.layer_inputs = c10::make_intrusive<nn::SharedValues>();
  return context.layer_inputs->give(x, layer_inputs_->forward(x, scaled(rows, decoder_.layer_table_scale)));
}

bool DecoderForCausalLM::ignores_tensor(const std::string& name) const {
  for (int64_t i = 0; i < decoder_.unread_layers; ++i) {
    const std::string layer = std::to_string(config_.num_layers + i);
    if (name.starts_with(decoder_.body + "." + decoder_.layers + "." + layer + ".")) return true;
  }
  if (!decoder_.unread_module.empty() && name.starts_with(decoder_.unread_module + ".")) return true;
  for (const std::string& ending : decoder_.unread_endings) {
    if (name.ends_with(ending)) return true;
  }
  return CausalLM::ignores_tensor(name);
}

void DecoderForCausalLM::add_positions(nn::SequenceContext& context, const at::Tensor& position_ids) const {
  for (const auto& rope : ropes_) {
    context.rotary.push_back(rope->table(position_ids, context.document_starts, hidden_type(), context.part));
  }
  if (alibi_ != nullptr) context.key_bias = alibi_->table(position_ids, hidden_type());
  for (size_t i = 0; i < num_shared_keys_; ++i)
    context.shared_keys.push_back(c10::make_intrusive<nn::SharedValues>());
}

}  // namespace tessera::models
