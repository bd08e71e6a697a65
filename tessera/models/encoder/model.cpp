#include "tessera/models/encoder/model.h"

#include <functional>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/models/common/score_head.h"
#include "tessera/nn/call_hook.h"
#include "tessera/nn/classification_head.h"

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

}  // namespace

EncoderClassifier::EncoderClassifier(const EncoderConfig& config, at::ScalarType dtype) : config_(config) {
  const Encoder& e = config_.encoder;
  if (!config.classification) {
    throw Error(ErrorKind::Model, "TASK",
                "an encoder is read as a classifier, and config.json has no head of one")
        .in(config.source_file + ": key 'architectures'")
        .need("a *ForSequenceClassification")
        .hint("train a classifier of it with task: classification");
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
  positions_ = add_table(e.positions, config.max_position_embeddings);
  types_ = add_table(e.types, e.num_types);
  embedding_norm_ = add(e.body + "." + e.embedding_norm, nn::make_norm(hidden, e.norm, dtype));
  for (const nn::TransformerBlockOptions& options : e.blocks) {
    const auto number = static_cast<int64_t>(blocks_.size());
    blocks_.push_back(add(e.body + "." + e.layers + "." + std::to_string(number),
                          std::make_shared<nn::TransformerBlock>(options, number, dtype)));
  }
  for (const nn::RopeOptions& rope : e.ropes) ropes_.push_back(std::make_unique<nn::RotaryEmbedding>(rope));

  nn::ClassifierLayers layers;
  if (!e.final_norm.empty())
    layers.norm = add(e.body + "." + e.final_norm, nn::make_norm(hidden, e.norm, dtype));
  if (!e.dense.name.empty()) {
    layers.dense = add(e.dense.name, std::make_shared<nn::Linear>(hidden, hidden, e.dense.has_bias, dtype));
    layers.activation = function_of(e.dense.activation);
  }
  if (!e.dense.norm.empty()) {
    const auto norm = add(e.dense.norm, nn::make_norm(hidden, e.norm, dtype));
    // The role is for norms of the residual stream, which parallel layouts treat token by token.
    norm->set_role(nn::ParameterRole::Other);
    layers.dense_norm = norm;
  }
  layers.classifier = add(
      e.classifier, std::make_shared<nn::Linear>(hidden, config.classification->num_labels(), true, dtype));
  layers.classifier->refuse_adapter(kClassifierIsWhole);
  head_ = std::make_shared<nn::ClassificationHead>(std::move(layers), *config.classification);
}

std::vector<std::shared_ptr<nn::Embedding>> EncoderClassifier::embeddings() const {
  std::vector<std::shared_ptr<nn::Embedding>> tables = {words_};
  for (const auto& table : {positions_, types_}) {
    if (table != nullptr) tables.push_back(table);
  }
  return tables;
}

at::Tensor EncoderClassifier::embed(const at::Tensor& input_ids, const at::Tensor& position_ids,
                                    const at::Tensor& type_ids) {
  at::Tensor x = nn::call(*words_, input_ids).to(hidden_type());
  if (types_ != nullptr) {
    const at::Tensor types = type_ids.defined() ? type_ids : at::zeros_like(input_ids);
    x = x + nn::call(*types_, types).to(hidden_type());
  }
  if (positions_ != nullptr)
    x = x + nn::call(*positions_, position_ids + config_.encoder.first_position).to(hidden_type());
  return embedding_norm_->forward(x);
}

void EncoderClassifier::add_positions(nn::SequenceContext& context, const at::Tensor& position_ids) const {
  for (const auto& rope : ropes_) {
    context.rotary.push_back(rope->table(position_ids, context.document_starts, hidden_type(), context.part));
  }
}

std::vector<checkpoint::StoredPart> EncoderClassifier::stored_parts(
    const std::string& name, const at::Tensor& parameter, const checkpoint::LayerParts& layers) const {
  auto parts = CausalLM::stored_parts(name, parameter, layers);
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

bool EncoderClassifier::ignores_tensor(const std::string& name) const {
  // Transformers saved the numbers of positions, and a model without its head has a pooler where the
  // classifier of the family reads none.
  return name.ends_with("embeddings.position_ids") || name.starts_with(config_.encoder.body + ".pooler.") ||
         CausalLM::ignores_tensor(name);
}

}  // namespace tessera::models
