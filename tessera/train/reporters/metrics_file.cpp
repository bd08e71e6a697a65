#include "tessera/train/reporters/metrics_file.h"

#include <nlohmann/json.hpp>

namespace tessera::train {

void MetricsFile::on_line(const StepMetrics& line) {
  nlohmann::ordered_json json = {{"step", line.step},
                                 {"epoch", line.epoch},
                                 {"loss", line.loss},
                                 {"lr", line.lr},
                                 {"grad_norm", line.grad_norm},
                                 {"tokens", line.tokens},
                                 {"tokens_seen", line.tokens_seen},
                                 {"label_tokens", line.label_tokens},
                                 {"tokens_per_s", line.tokens_per_s},
                                 {"step_s", line.step_s},
                                 {"data_wait_s", line.data_wait_s},
                                 {"sol", line.sol},
                                 {"mfu", line.mfu},
                                 {"hfu", line.hfu},
                                 {"peak_rss", line.peak_rss}};
  if (line.peak_device > 0) json["peak_device"] = line.peak_device;
  if (!line.datasets.empty()) json["losses"] = to_json(line.datasets);
  if (line.routers) {
    json["router_balance"] = line.routers->balance;
    json["router_z_loss"] = line.routers->z_loss;
  }
  if (line.gradient_noise.steps > 0) json["gradient_noise"] = to_json(line.gradient_noise);
  if (line.save_stall_s > 0.0) json["save_stall_s"] = line.save_stall_s;
  if (line.skipped_steps > 0) json["skipped_steps"] = line.skipped_steps;
  if (line.loss_scale != 1.0) json["loss_scale"] = line.loss_scale;
  if (!line.traffic.empty()) json["traffic"] = to_json(line.traffic);
  if (line.states) json["states"] = to_json(*line.states);
  if (line.straggler) {
    json["straggler"] = {{"rank", line.straggler->rank},
                         {"slowdown", line.straggler->slowdown},
                         {"section", section_name(line.straggler->section)}};
  }
  logs_.append(file_, json.dump() + "\n");
}

void MetricsFile::on_evaluation(int64_t step, const Evaluated& evaluated) {
  nlohmann::ordered_json json = {{"step", step}};
  json.update(to_json(evaluated));
  logs_.append(file_, json.dump() + "\n");
}

}  // namespace tessera::train
