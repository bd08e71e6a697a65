// Measures the loss of a model on the data of a recipe, without training.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/config/recipe.h"
#include "tessera/train/step/metrics.h"

namespace tessera::train {

struct ModelEvaluation {
  // The loss is the mean over the label tokens: of a language model that of the cross-entropy, in nats.
  double loss = 0.0;
  std::vector<DatasetLoss> datasets;  // the same for each; empty unless there are several
  NamedMetrics metrics;               // of a classifier
  int64_t label_tokens = 0;
  bool is_of_training_rows = false;  // the recipe has no evaluation data
  double seconds = 0.0;              // without the time to load model and data

  // Returns {"loss": ..., "perplexity": ..., "label_tokens": ..., "datasets": {"chats": {...}, ...}, ...}; of
  // a classifier {"loss": ..., "accuracy": ..., "label_tokens": ..., ...}.
  std::string to_json() const;
};

// Evaluates the recipe's model on its evaluation data, or on all training rows where it has none, in the
// recipe's layout over the ranks of `world`. The model is base_model with the adapter of lora_model_dir if
// the recipe names one, and with the values of `checkpoint` (a folder; empty for none). What only training
// uses (label smoothing, losses of routers, noise) is left out. Throws what a training run throws
// before its first step, and Error(Numerics, "EVAL-LOSS") where the loss is not finite. Collective.
ModelEvaluation evaluate_model(config::Recipe recipe, const std::string& checkpoint,
                               const std::shared_ptr<comm::Communicator>& world);

}  // namespace tessera::train
