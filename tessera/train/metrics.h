// What a run measures.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tessera/core/step_clock.h"
#include "tessera/train/straggler_watch.h"

namespace tessera::train {

// What the first rank sent and waited for along one axis of the mesh.
struct AxisTraffic {
  int64_t bytes_sent = 0;
  double wait_s = 0.0;
};
// Of the rows of one dataset.
struct DatasetLoss {
  std::string name;
  double loss = 0.0;  // mean of a label token
  int64_t label_tokens = 0;
};
// What the losses of routers are made of (nn::RouterBalance), as means of a label token.
struct RouterValues {
  double balance = 0.0, z_loss = 0.0;
};
// Of sums of losses, and the label tokens that they are over; datasets without any are left out.
std::vector<DatasetLoss> dataset_losses(const std::vector<std::string>& names,
                                        const std::vector<double>& sums,
                                        const std::vector<int64_t>& label_tokens);
// {"chats": 1.25, ...}
nlohmann::ordered_json to_json(const std::vector<DatasetLoss>& losses);

// {"fsdp": {"bytes_sent": 4096, "wait_s": 0.25}, ...}
nlohmann::ordered_json to_json(const std::map<std::string, AxisTraffic>& traffic);

// One step, or the steps since the line before, as metrics.jsonl has them.
struct StepMetrics {
  int64_t step = 0;  // 1-based
  double epoch = 0.0;
  double loss = 0.0;         // mean of a label token
  double lr = 0.0;           // of the last step
  double grad_norm = 0.0;    // of the last step
  int64_t tokens = 0;        // of all ranks
  int64_t tokens_seen = 0;   // of all ranks, since the first step
  int64_t label_tokens = 0;  // of all ranks
  int64_t token_pairs = 0;   // of one document, of all ranks: the sum of the documents' squared lengths
  double step_s = 0.0;       // mean
  double data_wait_s = 0.0;  // mean: the part of it that this rank waited for rows
  double tokens_per_s = 0.0;
  double loss_scale = 1.0;  // for the next step
  double sol = 0.0;  // share of the speed of light: time of the step's GEMMs alone over the step's time
  double mfu = 0.0, hfu = 0.0;  // model and hardware FLOPs utilization, see reporters/light.h
  int64_t peak_rss = 0;         // bytes, largest rank
  // Bytes of the tensors on a GPU when they were most since the line before, largest rank; 0 on the CPU.
  int64_t peak_device = 0;
  std::vector<DatasetLoss> datasets;           // where there are several
  std::optional<RouterValues> routers;         // where the loss asks for them
  double save_stall_s = 0.0;                   // that the steps waited for checkpoints before this one
  int64_t skipped_steps = 0;                   // that made no update (spike_action, an overflow of float16)
  bool rolls_back = false;                     // the last step asks for the newest checkpoint's values
  std::map<std::string, AxisTraffic> traffic;  // mean of a step, by axis; none for one rank
  StepTimes own_times = {};                    // of this rank, in the last step
  int64_t own_layers = 0;                      // that it ran forward there
  std::optional<Straggler> straggler;          // that there was at the last step
};

// The steps since the last line, as one.
class MetricsWindow {
 public:
  void add(const StepMetrics& step);
  // Requires a step since the last take().
  StepMetrics take();
  bool is_empty() const { return num_steps_ == 0; }

  nlohmann::ordered_json to_json() const;
  // Of what to_json() gave. Throws nlohmann::json::exception for anything else.
  static MetricsWindow from_json(const nlohmann::ordered_json& json);

 private:
  StepMetrics sum_;                                             // loss and times as sums
  double products_s_ = 0.0, model_s_ = 0.0, hardware_s_ = 0.0;  // at the speed of light, at peak
  // Sums of losses and numbers of label tokens, by dataset.
  std::map<std::string, std::pair<double, int64_t>> datasets_;
  int64_t num_steps_ = 0;
};

}  // namespace tessera::train
