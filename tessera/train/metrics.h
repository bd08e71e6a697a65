// What a run measures, as JSON lines and as TensorBoard events.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tessera::train {

// One step, or the steps since the line before, as metrics.jsonl has them.
struct StepMetrics {
  int64_t step = 0;  // 1-based
  double epoch = 0.0;
  double loss = 0.0;         // mean of a label token
  double lr = 0.0;           // of the last step
  double grad_norm = 0.0;    // of the last step
  int64_t tokens = 0;        // of all ranks
  int64_t label_tokens = 0;  // of all ranks
  double step_s = 0.0;       // mean
  double tokens_per_s = 0.0;
  double sol = 0.0;      // share of the speed of light: time of the step's GEMMs alone over the step's time
  int64_t peak_rss = 0;  // bytes, largest rank
};

// The steps since the last line, as one.
class MetricsWindow {
 public:
  void add(const StepMetrics& step);
  // Requires a step since the last take().
  StepMetrics take();

 private:
  StepMetrics sum_;  // loss and times as sums
  double products_s_ = 0.0;
  int64_t num_steps_ = 0;
};

// Appends to `folder`/metrics.jsonl and `folder`/runs/events.out.tfevents.*. A log that cannot be written
// (disk full, folder gone) is reported once and never stops the training; it holds whole records alone.
class MetricsWriter {
 public:
  // Starts both files anew. Throws Error(Storage) when the folder cannot be written.
  explicit MetricsWriter(const std::string& folder);
  ~MetricsWriter();
  void write(const StepMetrics& metrics);
  // {"step": s, "eval_loss": x} as a line of its own.
  void write_eval(int64_t step, double eval_loss);
  // Writes both files again where somebody has removed them, and says whether. For the end of a run: what is
  // written afterwards does not reach them. Throws Error(Storage).
  bool put_back();

 private:
  void append_line(const std::string& line);
  struct Files;
  std::unique_ptr<Files> files_;
};

// One event of a TensorBoard file in its framing (TFRecord: length, masked CRC-32C, protobuf, masked
// CRC-32C).
std::string tensorboard_event(double wall_time, int64_t step,
                              const std::vector<std::pair<std::string, float>>& scalars);
// The event that must open a file.
std::string tensorboard_header(double wall_time);
// CRC-32C (Castagnoli) of `bytes`.
uint32_t crc32c(const std::string& bytes);

}  // namespace tessera::train
