// Writes what a run measures for Prometheus: the textfile collector of its node exporter reads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/train/reporters/reporter.h"
#include "tessera/train/reporters/scalars.h"

namespace tessera::train {

// The first bytes of every such file.
inline constexpr const char* kPrometheusBegin = "# TYPE tessera_";

// Writes a file in the text format, put in place as a whole at every line of metrics and every evaluation. A
// file that cannot be written is reported once and never stops the training.
class PrometheusFile : public Reporter {
 public:
  // `run` is the label that tells its numbers from those of other runs.
  PrometheusFile(std::string path, std::string run) : path_(std::move(path)), run_(std::move(run)) {}

  void on_line(const StepMetrics& line) override;
  void on_evaluation(int64_t step, const Evaluated& evaluated) override;

 private:
  void write();

  std::string path_, run_;
  int64_t step_ = 0;
  Scalars train_, evaluation_;
  bool has_warned_ = false;
};

// Returns the text of the file. "train/loss" becomes tessera_train_loss{run="..."}, "train/loss/chats"
// tessera_train_loss{run="...",dataset="chats"}.
std::string prometheus_text(const Scalars& scalars, const std::string& run);

}  // namespace tessera::train
