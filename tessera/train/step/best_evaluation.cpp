#include "tessera/train/step/best_evaluation.h"

#include <string>
#include <vector>

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

DecidingMetric deciding_metric(const config::Recipe& recipe, const Evaluated& evaluated) {
  const std::string& metric = recipe.metric_for_best_model;
  const bool is_loss = metric.empty() || metric == "loss" || metric == "eval_loss";
  if (is_loss && evaluated.loss) return {"loss", *evaluated.loss};
  std::vector<std::string> names;
  if (evaluated.loss) names.emplace_back("eval_loss");
  for (const DatasetLoss& dataset : evaluated.datasets) {
    names.push_back("eval_" + dataset.name + "_loss");
    if (names.back() == metric) return {metric, dataset.loss};
  }
  for (const auto& [name, value] : evaluated.metrics) {
    names.push_back("eval_" + name);
    if (metric == name || metric == names.back()) return {metric, value, name != "mse"};
  }
  for (const TaskMetric& task : evaluated.tasks) {
    names.push_back("eval/" + task.name);
    if (metric.empty() || metric == names.back()) return {names.back(), task.value, task.higher_is_better};
  }
  throw Error(ErrorKind::Config, "VALUE",
              "key 'metric_for_best_model': an evaluation measures nothing of this name")
      .in(recipe.source_file)
      .got(metric)
      .need(join(names, ", "));
}

}  // namespace tessera::train
