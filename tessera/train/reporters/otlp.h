// Writes what a run measures for OpenTelemetry: into a file of OTLP in JSON, which the otlpjsonfile receiver
// of its collector reads. Tessera sends nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/train/reporters/reporter.h"
#include "tessera/train/reporters/run_logs.h"
#include "tessera/train/reporters/scalars.h"

namespace tessera::train {

// Writes otel/metrics.jsonl, with an ExportMetricsServiceRequest in each line.
class OtlpFile : public Reporter {
 public:
  // Starts the file in `logs`, which outlives this, or goes on with the one that a checkpoint kept. `run`
  // names the run in each line. Throws Error(Storage).
  OtlpFile(RunLogs& logs, std::string run);

  void on_line(const StepMetrics& line) override;
  void on_evaluation(int64_t step, const Evaluated& evaluated) override;

 private:
  RunLogs& logs_;
  io::LogFile& file_;
  std::string run_;
};

// Returns a line of the file. "train/loss/chats" becomes the gauge tessera.train.loss with the attribute
// dataset: chats; each point has the attribute step.
std::string otlp_line(const Scalars& scalars, int64_t step, const std::string& run, int64_t unix_ns);

}  // namespace tessera::train
