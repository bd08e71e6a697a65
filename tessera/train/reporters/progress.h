// Shows the one line that says how a run goes.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/core/process_stats.h"
#include "tessera/train/reporters/reporter.h"

namespace tessera::train {

// Returns "step 12/40  epoch 0.60  loss 1.2345  lr 1.8e-04  2.10M tokens  512 tokens/s  71% of roofline
// 1.4 GiB  left 3m20s", in one line with two spaces between its parts.
std::string progress_line(const StepMetrics& metrics, int64_t total_steps, double seconds_left);

// Rewrites one line on a terminal, cut to its width. Elsewhere it writes a line every few seconds, and always
// the first and the last one.
class Progress : public Reporter {
 public:
  explicit Progress(int64_t total_steps);
  // Ends an open line, so that an error starts on a line of its own.
  ~Progress() override;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void on_line(const StepMetrics& line) override;
  // Shows "step 12/40  evaluating 3/12", where 3/12 are steps of the evaluation.
  void on_evaluating(int64_t done, int64_t total) override;
  // Writes "eval loss 1.2345 after step 12".
  void on_evaluation(int64_t step, const Evaluated& evaluated) override;

 private:
  void show(const std::string& line, bool is_due);

  int64_t total_steps_;
  bool is_terminal_;
  bool is_evaluating_ = false;
  Timer since_start_, since_line_;
  int64_t first_step_ = -1, last_step_ = 0;
};

}  // namespace tessera::train
