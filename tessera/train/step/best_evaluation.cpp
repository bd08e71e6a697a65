#include "tessera/train/step/best_evaluation.h"

#include <string>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"

namespace tessera::train {

void BestEvaluation::judge(double eval_loss, int64_t after_step) {
  if (loss && !(eval_loss < *loss)) return;
  loss = eval_loss;
  step = after_step;
}

nlohmann::ordered_json BestEvaluation::to_json() const {
  nlohmann::ordered_json json = {{"step", step}};
  if (loss) json["loss"] = *loss;
  return json;
}

BestEvaluation BestEvaluation::from_json(const nlohmann::ordered_json& json) {
  BestEvaluation best;
  best.step = json.at("step");
  if (json.contains("loss")) best.loss = json.at("loss").get<double>();
  return best;
}

bool keeps_best(const config::CheckpointConfig& keys) {
  return keys.load_best_model_at_end || keys.save_strategy == config::Cadence::Best;
}

double deciding_loss(const config::Recipe& recipe, const Evaluated& evaluated) {
  const std::string& metric = recipe.metric_for_best_model;
  if (metric.empty() || metric == "loss" || metric == "eval_loss") return evaluated.loss;
  std::vector<std::string> names = {"eval_loss"};
  for (const DatasetLoss& dataset : evaluated.datasets) {
    names.push_back("eval_" + dataset.name + "_loss");
    if (names.back() == metric) return dataset.loss;
  }
  for (const auto& [name, value] : evaluated.metrics) {
    names.push_back("eval_" + name);
    if (metric == name || metric == names.back()) return name == "mse" ? value : -value;
  }
  throw Error(ErrorKind::Config, "VALUE",
              "key 'metric_for_best_model': an evaluation measures nothing of this name")
      .in(recipe.source_file)
      .got(metric)
      .need(join(names, ", "));
}

}  // namespace tessera::train
