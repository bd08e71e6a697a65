#include "tessera/models/encoder/model.h"

#include <functional>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/models/common/score_head.h"
#include "tessera/nn/call_hook.h"
#include "tessera/nn/classification_head.h"
#include "tessera/nn/output_head.h"

namespace tessera::models {
namespace {

std::function<at::Tensor(const at::Tensor&)> function_of(ClassifierDense::Activation activation) {
  switch (activation) {
    case ClassifierDense::Activation::Tanh: return [](const at::Tensor& x) { return at::tanh(x); };
    case ClassifierDense::Activation::Relu: return [](const at::Tensor& x) { return at::relu(x); };
    case ClassifierDense::Activation::Gelu: break;
  }
  return [](const at::Tensor& x) { return at::gelu(x); };
}

std::shared_ptr<nn::Norm> add_head_norm(torch::nn::Module& model, const std::string& name,
                                        const EncoderConfig& config, at::ScalarType dtype) {
  const auto norm =
      nn::register_below(model, name, nn::make_norm(config.hidden_size, config.encoder.norm, dtype));
  // The role is for norms of the residual stream, which parallel layouts treat token by token.
  norm->set_role(nn::ParameterRole::Other);
  return norm;
}

}  // namespace

EncoderModel::EncoderModel(const EncoderConfig& config, at::ScalarType dtype) : config_(config) {
  const Encoder& e = config_.encoder;
  if (!config.classification && !config.is_masked_lm) {
    throw Error(ErrorKind::Model, "TASK",
                "an encoder is read with the head of its task, and config.json names none that is known")
        .in(config.source_file + ": key 'architectures'")
        .need("a *ForSequenceClassification, *ForTokenClassification or *ForMaskedLM")
        .hint("task: classification, token_classification or masked_lm trains one");
  }
  const int64_t hidden = config.hidden_size;
  const auto add = [&]<class M>(const std::string& name, const std::shared_ptr<M>& module) {
    return nn::register_below(*this, name, module);
  };
  const auto add_table = [&](const std::string& name, int64_t rows) -> std::shared_ptr<nn::Embedding> {
    if (name.empty()) return nullptr;
    return add(e.body + "." + name, std::make_shared<nn::Embedding>(rows, hidden, dtype));
  };
  words_ = add_table(e.words, config.vocab_size);
  if (const auto row = config.fixed_row()) words_->set_fixed_row(*row);
  positions_ = add_table(e.positions, config.max_position_embeddings);
  types_ = add_table(e.types, e.num_types);
  embedding_norm_ = add(e.body + "." + e.embedding_norm, nn::make_norm(hidden, e.norm, dtype));
  embedding_dropout_ = nn::add_dropout(*this, "embedding_dropout", e.embedding_dropout, "embeddings");
  for (const nn::TransformerBlockOptions& options : e.blocks) {
    const auto number = static_cast<int64_t>(blocks_.size());
    blocks_.push_back(add(e.body + "." + e.layers + "." + std::to_string(number),
                          std::make_shared<nn::TransformerBlock>(options, number, dtype)));
  }
  for (const nn::RopeOptions& rope : e.ropes) ropes_.push_back(std::make_unique<nn::RotaryEmbedding>(rope));

  std::shared_ptr<nn::Norm> norm;
  if (!e.final_norm.empty()) norm = add(e.body + "." + e.final_norm, nn::make_norm(hidden, e.norm, dtype));
  head_ = config.classification ? make_classifier(norm, dtype) : make_masked_head(norm, dtype);
}

std::shared_ptr<nn::TaskHead> EncoderModel::make_classifier(const std::shared_ptr<nn::Norm>& norm,
                                                            at::ScalarType dtype) {
  const Encoder& e = config_.encoder;
  const int64_t hidden = config_.hidden_size;
  nn::ClassifierLayers layers{.norm = norm,
                              .input_dropout = e.dense.name.empty() ? 0.0 : e.dense.input_dropout,
                              .dropout = e.classifier_dropout};
  if (!e.dense.name.empty()) {
    layers.dense = nn::register_below(*this, e.dense.name,
                                      std::make_shared<nn::Linear>(hidden, hidden, e.dense.has_bias, dtype));
    layers.activation = function_of(e.dense.activation);
  }
  if (!e.dense.norm.empty()) layers.dense_norm = add_head_norm(*this, e.dense.norm, config_, dtype);
  layers.classifier = nn::register_below(
      *this, e.classifier,
      std::make_shared<nn::Linear>(hidden, config_.classification->num_labels(), true, dtype));
  layers.classifier->refuse_adapter(kClassifierIsWhole);
  return std::make_shared<nn::ClassificationHead>(std::move(layers), *config_.classification);
}

std::shared_ptr<nn::TaskHead> EncoderModel::make_masked_head(const std::shared_ptr<nn::Norm>& norm,
                                                             at::ScalarType dtype) {
  if (!config_.tie_word_embeddings) {
    throw Error(ErrorKind::Model, "UNSUPPORTED",
                "a masked language model with an output projection of its own is not implemented")
        .in(config_.source_file + ": key 'tie_word_embeddings'")
        .got("false")
        .need("true");
  }
  const MaskedHead& masked = config_.encoder.masked;
  const int64_t hidden = config_.hidden_size;
  const auto head = std::make_shared<nn::OutputHead>(norm, words_);
  // The module of the bias may be the one above the dense layer, so it comes first.
  if (!masked.bias.empty()) {
    head->set_bias(
        nn::register_below(*this, masked.bias, std::make_shared<nn::HeadBias>(config_.vocab_size, dtype))
            ->bias);
  }
  const auto dense = nn::register_below(
      *this, masked.dense, std::make_shared<nn::Linear>(hidden, hidden, masked.has_dense_bias, dtype));
  // Ranks of tensor parallelism run it for their own tokens, of which an adapter's dropout knows no numbers.
  dense->refuse_adapter(
      "is computed together with the loss; list it in lora_modules_to_save to train it whole");
  head->set_transform({dense, masked.activation, add_head_norm(*this, masked.norm, config_, dtype)});
  return head;
}

std::vector<TiedParameter> EncoderModel::tied_parameters() const {
  const Encoder& e = config_.encoder;
  if (!config_.is_masked_lm) return {};
  return {{e.masked.decoder + ".weight", e.body + "." + e.words + ".weight"}};
}

std::vector<std::shared_ptr<nn::Embedding>> EncoderModel::embeddings() const {
  std::vector<std::shared_ptr<nn::Embedding>> tables = {words_};
  for (const auto& table : {positions_, types_}) {
    if (table != nullptr) tables.push_back(table);
  }
  return tables;
}

at::Tensor EncoderModel::embed(const at::Tensor& input_ids, const at::Tensor& position_ids,
                               const at::Tensor& type_ids) {
  at::Tensor x = nn::call(*words_, input_ids).to(hidden_type());
  if (types_ != nullptr) {
    const at::Tensor types = type_ids.defined() ? type_ids : at::zeros_like(input_ids);
    x = x + nn::call(*types_, types).to(hidden_type());
  }
  if (positions_ != nullptr)
    x = x + nn::call(*positions_, position_ids + config_.encoder.first_position).to(hidden_type());
  x = embedding_norm_->forward(x);
  return embedding_dropout_ == nullptr ? x : embedding_dropout_->forward(x);
}

void EncoderModel::add_positions(nn::SequenceContext& context, const at::Tensor& position_ids) const {
  for (const auto& rope : ropes_) {
    context.rotary.push_back(rope->table(position_ids, context.document_starts, hidden_type(), context.part));
  }
}

std::vector<checkpoint::StoredPart> EncoderModel::stored_parts(const std::string& name,
                                                               const at::Tensor& parameter,
                                                               const checkpoint::LayerParts& layers) const {
  auto parts = CausalLM::stored_parts(name, parameter, layers);
  const MaskedHead& masked = config_.encoder.masked;
  if (config_.is_masked_lm && name == masked.bias + ".bias" && masked.bias != masked.decoder)
    parts.front().aliases.push_back(masked.decoder + ".bias");
  constexpr std::pair<std::string_view, const char*> kOld[] = {{"LayerNorm.weight", "LayerNorm.gamma"},
                                                               {"LayerNorm.bias", "LayerNorm.beta"}};
  for (checkpoint::StoredPart& part : parts) {
    std::vector<std::string> names = part.aliases;
    names.push_back(part.name);
    for (const auto& [now, then] : kOld) {
      for (const std::string& known : names) {
        if (known.ends_with(now)) part.aliases.push_back(known.substr(0, known.size() - now.size()) + then);
      }
    }
  }
  return parts;
}

bool EncoderModel::ignores_tensor(const std::string& name) const {
  // Transformers saved the numbers of positions, and a model without its head has a pooler where the
  // classifier of the family reads none.
  return name.ends_with("embeddings.position_ids") || name.starts_with(config_.encoder.body + ".pooler.") ||
         CausalLM::ignores_tensor(name);
}

}  // namespace tessera::models
