#include "tessera/models/common/score_head.h"

#include "tessera/nn/classification_head.h"

namespace tessera::models {

std::shared_ptr<nn::TaskHead> make_score_head(torch::nn::Module& model, const ModelConfig& config,
                                              const std::shared_ptr<nn::Norm>& norm, at::ScalarType dtype) {
  const auto score = model.register_module(
      "score",
      std::make_shared<nn::Linear>(config.hidden_size, config.classification->num_labels(), false, dtype));
  score->refuse_adapter(kClassifierIsWhole);
  return std::make_shared<nn::ClassificationHead>(nn::ClassifierLayers{.norm = norm, .classifier = score},
                                                  *config.classification);
}

}  // namespace tessera::models
