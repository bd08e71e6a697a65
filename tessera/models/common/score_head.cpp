#include "tessera/models/common/score_head.h"

#include "tessera/nn/classification_head.h"

namespace tessera::models {

std::shared_ptr<nn::TaskHead> make_score_head(torch::nn::Module& model, const ModelConfig& config,
                                              const std::shared_ptr<nn::Norm>& norm,
                                              const std::string& of_tokens, at::ScalarType dtype) {
  const Classification& classes = *config.classification;
  const auto score =
      model.register_module(classes.of_tokens() ? of_tokens : "score",
                            std::make_shared<nn::Linear>(config.hidden_size, classes.num_labels(),
                                                         classes.of_tokens() && config.has_head_bias, dtype));
  score->refuse_adapter(kClassifierIsWhole);
  const double dropout = classes.of_tokens() ? config.classifier_dropout : 0.0;
  return std::make_shared<nn::ClassificationHead>(
      nn::ClassifierLayers{.norm = norm, .classifier = score, .dropout = dropout}, classes);
}

}  // namespace tessera::models
