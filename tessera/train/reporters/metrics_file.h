// Writes metrics.jsonl: what a run measures, one JSON object a line.
#pragma once

#include "tessera/train/reporters/reporter.h"
#include "tessera/train/reporters/run_logs.h"

namespace tessera::train {

class MetricsFile : public Reporter {
 public:
  // Starts the file in `logs`, which outlives this, or goes on with the one that a checkpoint kept. Throws
  // Error(Storage).
  explicit MetricsFile(RunLogs& logs) : logs_(logs), file_(logs.open("metrics.jsonl", "metrics.jsonl")) {}

  void on_line(const StepMetrics& line) override;
  // Writes {"step": s, "eval_loss": x} as a line of its own, with "eval_losses" where there are several
  // datasets.
  void on_evaluation(int64_t step, const Evaluated& evaluated) override;

 private:
  RunLogs& logs_;
  io::LogFile& file_;
};

}  // namespace tessera::train
