// Holds what a run measures.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tessera/core/classification.h"
#include "tessera/core/step_clock.h"
#include "tessera/measure/straggler_watch.h"

namespace tessera::train {

// Bytes that the first rank sent along one axis of the mesh, and seconds that it waited there.
struct AxisTraffic {
  int64_t bytes_sent = 0;
  double wait_s = 0.0;
};
// Bytes of optimizer states that the first rank has moved from and to a drive, and the seconds that its
// update waited for them.
struct DriveTraffic {
  int64_t bytes_read = 0, bytes_written = 0;
  double wait_s = 0.0;
};
// Loss over the rows of one dataset.
struct DatasetLoss {
  std::string name;
  double loss = 0.0;  // mean over label tokens
  int64_t label_tokens = 0;
};
// The score of a task of lm-evaluation-harness in one metric.
struct TaskMetric {
  std::string name;  // "arc_easy/acc_norm"
  double value = 0.0;
  bool higher_is_better = true;
};
// A row of the evaluation data whose prompt the model has continued.
struct Sample {
  std::string dataset;  // empty unless there are several
  std::string prompt, expected, generated;
  std::string finish;  // "stop", "length", or "not finite" where the model's logits were not
};
// The results of an evaluation.
struct Evaluated {
  std::optional<double> loss;  // unset without evaluation data
  int64_t label_tokens = 0;
  std::vector<DatasetLoss> datasets = {};  // empty unless there are several
  NamedMetrics metrics = {};               // of a classifier
  std::vector<TaskMetric> tasks = {};
  std::vector<Sample> samples = {};  // on the first rank alone, and no part of to_json()
};
// Values of the losses of routers (nn::RouterBalance), as means over label tokens.
struct RouterValues {
  double balance = 0.0, z_loss = 0.0;
};
// Sums over the steps in which the noise of the gradient was measured (gradient_noise.h).
struct GradientNoise {
  double signal = 0.0;  // squared norm of the gradient without noise
  double noise = 0.0;   // variance of the gradient of one label token, over all parameters
  int64_t steps = 0;
};
// Returns the mean loss of each dataset: its sum of losses over its label tokens. Datasets without label
// tokens are left out.
std::vector<DatasetLoss> dataset_losses(const std::vector<std::string>& names,
                                        const std::vector<double>& sums,
                                        const std::vector<int64_t>& label_tokens);
// Returns {"chats": 1.25, ...}.
nlohmann::ordered_json to_json(const std::vector<DatasetLoss>& losses);
// Returns {"eval_loss": 0.5, "eval_losses": {...}, "eval_accuracy": 0.75, "eval/arc_easy/acc": 0.5, ...}.
nlohmann::ordered_json to_json(const Evaluated& evaluated);

// Returns {"signal": 0.5, "noise": 2000.0, "scale_tokens": 4000.0}: means, and the gradient noise scale,
// which is null where the signal drowns in the noise of its own estimate.
nlohmann::ordered_json to_json(const GradientNoise& noise);

// Returns {"bytes_read": 4096, "bytes_written": 4096, "wait_s": 0.25}.
nlohmann::ordered_json to_json(const DriveTraffic& states);

// Returns {"fsdp": {"bytes_sent": 4096, "wait_s": 0.25}, ...}.
nlohmann::ordered_json to_json(const std::map<std::string, AxisTraffic>& traffic);

// Metrics of one step, or of the steps since the line before, as a line of metrics.jsonl has them.
struct StepMetrics {
  int64_t step = 0;  // 1-based
  double epoch = 0.0;
  double loss = 0.0;         // mean over label tokens
  double lr = 0.0;           // of the last step
  double grad_norm = 0.0;    // of the last step
  int64_t tokens = 0;        // of all ranks
  int64_t tokens_seen = 0;   // of all ranks, since the first step
  int64_t label_tokens = 0;  // of all ranks
  int64_t token_pairs = 0;   // of all ranks: the sum of the documents' squared lengths
  double step_s = 0.0;       // mean
  double data_wait_s = 0.0;  // mean: the part of step_s in which this rank waited for rows
  double tokens_per_s = 0.0;
  double loss_scale = 1.0;  // for the next step
  double sol = 0.0;  // share of the speed of light: time of the step's GEMMs alone over the step's time
  double mfu = 0.0, hfu = 0.0;  // model and hardware FLOPs utilization (reporters/light.h)
  int64_t peak_rss = 0;         // bytes, of the rank with the most
  // The most bytes of tensors on a GPU since the line before, of the rank with the most; 0 on the CPU.
  int64_t peak_device = 0;
  std::vector<DatasetLoss> datasets;    // empty unless there are several
  std::optional<RouterValues> routers;  // unset unless the loss asks for them
  GradientNoise gradient_noise;         // sums of the steps in which it was measured
  double save_stall_s = 0.0;            // seconds for which checkpoints held up the steps before
  int64_t skipped_steps = 0;            // steps without an update (spike_action, an overflow of float16)
  bool rolls_back = false;              // the last step asks for the newest checkpoint's values
  std::map<std::string, AxisTraffic> traffic;   // mean of a step, by axis; empty for one rank
  std::optional<DriveTraffic> states = {};      // mean of a step; unset where no states lie on a drive
  StepTimes own_times = {};                     // of this rank, in the last step
  int64_t own_layers = 0;                       // layers that this rank ran forward in that step
  std::optional<measure::Straggler> straggler;  // the one that there was at the last step
};

// Adds up the steps since the last line of metrics.jsonl.
class MetricsWindow {
 public:
  void add(const StepMetrics& step);
  // Returns the metrics of these steps, and starts anew. Requires a step since the last take().
  StepMetrics take();
  bool is_empty() const { return num_steps_ == 0; }

  nlohmann::ordered_json to_json() const;
  // Reads what to_json() gave. Throws nlohmann::json::exception for anything else.
  static MetricsWindow from_json(const nlohmann::ordered_json& json);

 private:
  StepMetrics sum_;  // loss and times are sums; the rest is of the last step
  double products_s_ = 0.0, model_s_ = 0.0, hardware_s_ = 0.0;  // seconds at the speed of light, and at peak
  // Sum of losses and number of label tokens, by dataset.
  std::map<std::string, std::pair<double, int64_t>> datasets_;
  int64_t num_steps_ = 0;
};

}  // namespace tessera::train
