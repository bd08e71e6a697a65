#include "tessera/train/step/metrics.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"

namespace tessera::train {

std::vector<DatasetLoss> dataset_losses(const std::vector<std::string>& names,
                                        const std::vector<double>& sums,
                                        const std::vector<int64_t>& label_tokens) {
  std::vector<DatasetLoss> losses;
  for (size_t i = 0; i < label_tokens.size(); ++i) {
    if (label_tokens[i] == 0) continue;
    losses.push_back({names[i], sums[i] / static_cast<double>(label_tokens[i]), label_tokens[i]});
  }
  return losses;
}

nlohmann::ordered_json to_json(const std::vector<DatasetLoss>& losses) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const DatasetLoss& dataset : losses) json[dataset.name] = dataset.loss;
  return json;
}

nlohmann::ordered_json to_json(const std::map<std::string, AxisTraffic>& traffic) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [axis, of_axis] : traffic) {
    json[axis] = {{"bytes_sent", of_axis.bytes_sent}, {"wait_s", of_axis.wait_s}};
  }
  return json;
}

nlohmann::ordered_json to_json(const Evaluated& evaluated) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (evaluated.loss) json["eval_loss"] = *evaluated.loss;
  if (!evaluated.datasets.empty()) json["eval_losses"] = to_json(evaluated.datasets);
  for (const auto& [name, value] : evaluated.metrics) json["eval_" + name] = value;
  for (const TaskMetric& task : evaluated.tasks) json["eval/" + task.name] = task.value;
  return json;
}

nlohmann::ordered_json to_json(const DriveTraffic& states) {
  return {
      {"bytes_read", states.bytes_read}, {"bytes_written", states.bytes_written}, {"wait_s", states.wait_s}};
}

nlohmann::ordered_json to_json(const GradientNoise& noise) {
  const auto steps = static_cast<double>(noise.steps);
  nlohmann::ordered_json json = {
      {"signal", noise.signal / steps}, {"noise", noise.noise / steps}, {"scale_tokens", nullptr}};
  if (noise.signal > 0.0 && noise.noise >= 0.0) json["scale_tokens"] = noise.noise / noise.signal;
  return json;
}

void MetricsWindow::add(const StepMetrics& step) {
  const StepMetrics before = sum_;
  sum_ = step;
  sum_.loss = before.loss + step.loss * static_cast<double>(step.label_tokens);
  if (step.routers) {
    const auto tokens = static_cast<double>(step.label_tokens);
    const RouterValues sums = before.routers.value_or(RouterValues{});
    sum_.routers = {sums.balance + step.routers->balance * tokens,
                    sums.z_loss + step.routers->z_loss * tokens};
  }
  sum_.gradient_noise.signal += before.gradient_noise.signal;
  sum_.gradient_noise.noise += before.gradient_noise.noise;
  sum_.gradient_noise.steps += before.gradient_noise.steps;
  sum_.tokens += before.tokens;
  sum_.label_tokens += before.label_tokens;
  sum_.step_s += before.step_s;
  sum_.data_wait_s += before.data_wait_s;
  sum_.save_stall_s += before.save_stall_s;
  sum_.skipped_steps += before.skipped_steps;
  for (const auto& [axis, traffic] : before.traffic) {
    sum_.traffic[axis].bytes_sent += traffic.bytes_sent;
    sum_.traffic[axis].wait_s += traffic.wait_s;
  }
  if (step.states) {
    const DriveTraffic sums = before.states.value_or(DriveTraffic{});
    sum_.states = {sums.bytes_read + step.states->bytes_read, sums.bytes_written + step.states->bytes_written,
                   sums.wait_s + step.states->wait_s};
  }
  products_s_ += step.sol * step.step_s;
  model_s_ += step.mfu * step.step_s;
  hardware_s_ += step.hfu * step.step_s;
  for (const DatasetLoss& dataset : step.datasets) {
    auto& [sum, label_tokens] = datasets_[dataset.name];
    sum += dataset.loss * static_cast<double>(dataset.label_tokens);
    label_tokens += dataset.label_tokens;
  }
  ++num_steps_;
}

StepMetrics MetricsWindow::take() {
  TESSERA_ASSERT(num_steps_ > 0, "a window without steps");
  StepMetrics line = sum_;
  const auto label_tokens = static_cast<double>(std::max<int64_t>(1, sum_.label_tokens));
  line.loss = sum_.loss / label_tokens;
  if (sum_.routers)
    line.routers = {sum_.routers->balance / label_tokens, sum_.routers->z_loss / label_tokens};
  line.tokens_per_s = static_cast<double>(sum_.tokens) / sum_.step_s;
  line.sol = products_s_ / sum_.step_s;
  line.mfu = model_s_ / sum_.step_s;
  line.hfu = hardware_s_ / sum_.step_s;
  for (auto& [axis, traffic] : line.traffic) {
    traffic.bytes_sent /= num_steps_;
    traffic.wait_s /= static_cast<double>(num_steps_);
  }
  if (line.states) {
    line.states->bytes_read /= num_steps_;
    line.states->bytes_written /= num_steps_;
    line.states->wait_s /= static_cast<double>(num_steps_);
  }
  line.step_s = sum_.step_s / static_cast<double>(num_steps_);
  line.data_wait_s = sum_.data_wait_s / static_cast<double>(num_steps_);
  line.datasets.clear();
  for (const auto& [name, sums] : datasets_) {
    line.datasets.push_back({name, sums.first / static_cast<double>(sums.second), sums.second});
  }
  *this = MetricsWindow();
  return line;
}

nlohmann::ordered_json MetricsWindow::to_json() const {
  // The other metrics are those of the last step, which the next one replaces.
  nlohmann::ordered_json json = {{"steps", num_steps_},
                                 {"loss", sum_.loss},
                                 {"tokens", sum_.tokens},
                                 {"label_tokens", sum_.label_tokens},
                                 {"step_s", sum_.step_s},
                                 {"data_wait_s", sum_.data_wait_s},
                                 {"products_s", products_s_},
                                 {"model_s", model_s_},
                                 {"hardware_s", hardware_s_},
                                 {"save_stall_s", sum_.save_stall_s},
                                 {"skipped_steps", sum_.skipped_steps},
                                 {"datasets", datasets_},
                                 {"traffic", tessera::train::to_json(sum_.traffic)}};
  if (const GradientNoise& noise = sum_.gradient_noise; noise.steps > 0)
    json["gradient_noise"] = {noise.signal, noise.noise, noise.steps};
  if (sum_.routers) json["routers"] = {sum_.routers->balance, sum_.routers->z_loss};
  if (sum_.states) json["states"] = tessera::train::to_json(*sum_.states);
  return json;
}

MetricsWindow MetricsWindow::from_json(const nlohmann::ordered_json& json) {
  MetricsWindow window;
  window.num_steps_ = json.at("steps");
  window.sum_.loss = json.at("loss");
  window.sum_.tokens = json.at("tokens");
  window.sum_.label_tokens = json.at("label_tokens");
  window.sum_.step_s = json.at("step_s");
  window.sum_.data_wait_s = json.at("data_wait_s");
  window.products_s_ = json.at("products_s");
  window.sum_.save_stall_s = json.at("save_stall_s");
  window.sum_.skipped_steps = json.at("skipped_steps");
  window.model_s_ = json.at("model_s");
  window.hardware_s_ = json.at("hardware_s");
  for (const auto& [axis, traffic] : json.at("traffic").items()) {
    window.sum_.traffic[axis] = {traffic.at("bytes_sent"), traffic.at("wait_s")};
  }
  window.datasets_ = json.at("datasets").get<decltype(datasets_)>();
  if (const auto noise = json.find("gradient_noise"); noise != json.end())
    window.sum_.gradient_noise = {noise->at(0), noise->at(1), noise->at(2)};
  if (const auto routers = json.find("routers"); routers != json.end())
    window.sum_.routers = {routers->at(0), routers->at(1)};
  if (const auto states = json.find("states"); states != json.end())
    window.sum_.states = {states->at("bytes_read"), states->at("bytes_written"), states->at("wait_s")};
  return window;
}

}  // namespace tessera::train
