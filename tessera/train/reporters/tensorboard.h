// Writes what a run measures for TensorBoard.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/train/reporters/reporter.h"
#include "tessera/train/reporters/run_logs.h"
#include "tessera/train/reporters/scalars.h"

namespace tessera::train {

// Writes runs/events.out.tfevents.<time>.<process>.
class TensorBoardFile : public Reporter {
 public:
  // Starts a file in `logs`, which outlives this, with the events that a checkpoint kept. Throws
  // Error(Storage).
  explicit TensorBoardFile(RunLogs& logs);

  void on_line(const StepMetrics& line) override;
  void on_evaluation(int64_t step, const Evaluated& evaluated) override;

 private:
  RunLogs& logs_;
  io::LogFile& file_;
};

// Returns one event of a TensorBoard file in its framing (TFRecord: length, masked CRC-32C, protobuf, masked
// CRC-32C).
std::string tensorboard_event(double wall_time, int64_t step, const Scalars& scalars);
// Returns one event with a table of samples, which the text plugin shows. There must be some.
std::string tensorboard_samples(double wall_time, int64_t step, const std::vector<Sample>& samples);
// Returns the event that must open a file.
std::string tensorboard_header(double wall_time);
// Returns the CRC-32C (Castagnoli) of `bytes`.
uint32_t crc32c(const std::string& bytes);

}  // namespace tessera::train
