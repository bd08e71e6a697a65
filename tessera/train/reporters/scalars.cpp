#include "tessera/train/reporters/scalars.h"

namespace tessera::train {
namespace {

void add_datasets(const std::string& prefix, const std::vector<DatasetLoss>& datasets, Scalars& scalars) {
  for (const DatasetLoss& dataset : datasets) scalars.emplace_back(prefix + dataset.name, dataset.loss);
}

}  // namespace

Scalars scalars_of(const StepMetrics& line) {
  Scalars scalars = {{"train/loss", line.loss},
                     {"train/learning_rate", line.lr},
                     {"train/grad_norm", line.grad_norm},
                     {"train/tokens_per_s", line.tokens_per_s},
                     {"train/tokens_seen", static_cast<double>(line.tokens_seen)},
                     {"train/data_wait_s", line.data_wait_s},
                     {"train/epoch", line.epoch},
                     {"train/mfu", line.mfu},
                     {"train/peak_rss_gib", static_cast<double>(line.peak_rss) / 1073741824.0}};
  if (line.peak_device > 0)
    scalars.emplace_back("train/peak_device_gib", static_cast<double>(line.peak_device) / 1073741824.0);
  if (line.states) scalars.emplace_back("train/states_wait_s", line.states->wait_s);
  if (const GradientNoise& noise = line.gradient_noise; noise.steps > 0 && noise.signal > 0.0)
    scalars.emplace_back("train/noise_scale_tokens", noise.noise / noise.signal);
  if (line.routers) {
    scalars.emplace_back("train/router_balance", line.routers->balance);
    scalars.emplace_back("train/router_z_loss", line.routers->z_loss);
  }
  add_datasets("train/loss/", line.datasets, scalars);
  return scalars;
}

ScalarName split_name(const std::string& name) {
  const size_t first = name.find('/'), second = name.find('/', first + 1);
  if (second == std::string::npos) return {name, {}};
  const std::string before = name.substr(0, second);
  if (before.ends_with("/loss")) return {before, ScalarLabel{"dataset", name.substr(second + 1)}};
  // A task's name may hold a slash, and a metric's does not.
  const size_t last = name.rfind('/');
  return {name.substr(0, first) + name.substr(last),
          ScalarLabel{"task", name.substr(first + 1, last - first - 1)}};
}

Scalars scalars_of_evaluation(const Evaluated& evaluated) {
  Scalars scalars;
  if (evaluated.loss) scalars.emplace_back("eval/loss", *evaluated.loss);
  add_datasets("eval/loss/", evaluated.datasets, scalars);
  for (const auto& [name, value] : evaluated.metrics) scalars.emplace_back("eval/" + name, value);
  for (const TaskMetric& task : evaluated.tasks) scalars.emplace_back("eval/" + task.name, task.value);
  return scalars;
}

}  // namespace tessera::train
