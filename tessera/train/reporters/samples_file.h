// Writes samples.jsonl: what the model has made of prompts of the evaluation data, one JSON object a line.
#pragma once

#include "tessera/train/reporters/reporter.h"
#include "tessera/train/reporters/run_logs.h"

namespace tessera::train {

class SamplesFile : public Reporter {
 public:
  // Starts the file in `logs`, which outlives this, or goes on with the one that a checkpoint kept. Throws
  // Error(Storage).
  explicit SamplesFile(RunLogs& logs) : logs_(logs), file_(logs.open("samples.jsonl", "samples.jsonl")) {}

  // Writes {"step": s, "prompt": p, "expected": e, "generated": g, "finish": "stop"} for each sample, with
  // "dataset" where there are several. Characters on which a terminal acts are escaped.
  void on_evaluation(int64_t step, const Evaluated& evaluated) override;

 private:
  RunLogs& logs_;
  io::LogFile& file_;
};

}  // namespace tessera::train
