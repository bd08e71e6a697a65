// The one line that says how a run goes.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/core/process_stats.h"
#include "tessera/train/reporters/reporter.h"

namespace tessera::train {

// "step 12/40  epoch 0.60  loss 1.2345  lr 1.8e-04  2.10M tokens  512 tokens/s  71% of light  1.4 GiB  left
// 3m20s"
std::string progress_line(const StepMetrics& metrics, int64_t total_steps, double seconds_left);

// On a terminal one line that is rewritten; otherwise a line every few seconds, and the last one always.
class Progress : public Reporter {
 public:
  explicit Progress(int64_t total_steps);
  // Leaves the line, so that an error starts on one of its own.
  ~Progress() override;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void on_line(const StepMetrics& line) override;
  // "step 12/40  evaluating 3/12": the evaluation's own steps.
  void on_evaluating(int64_t done, int64_t total) override;
  // "eval loss 1.2345 after step 12"
  void on_evaluation(int64_t step, double loss, const std::vector<DatasetLoss>& datasets) override;

 private:
  void finish();
  void show(const std::string& line, bool is_due);

  int64_t total_steps_;
  bool is_terminal_;
  bool has_open_line_ = false;
  Timer since_start_, since_line_;
  int64_t first_step_ = -1, last_step_ = 0;
};

}  // namespace tessera::train
