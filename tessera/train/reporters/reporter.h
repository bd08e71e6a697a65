// Those who look on as a run goes: each tells of one thing.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/train/metrics.h"
#include "tessera/train/train_state.h"

namespace tessera::train {

// After every step a run calls these of all its reporters, one after the other, in the order below. Every
// rank has those that measure, as they talk to each other; those that write are the first rank's.
class Reporter {
 public:
  virtual ~Reporter() = default;
  // An update is made. What is measured of the step is added to `metrics`.
  virtual void on_step(const TrainState& state, StepMetrics& metrics) {
    (void)state;
    (void)metrics;
  }
  // A line of metrics is due: the steps since the one before.
  virtual void on_line(const StepMetrics& line) { (void)line; }
  // All has been told of the step. For what comes between two steps.
  virtual void after_step(const TrainState& state) { (void)state; }

  // Of an evaluation between two steps: as it goes, and when it is done.
  virtual void on_evaluating(int64_t done, int64_t total) {
    (void)done;
    (void)total;
  }
  virtual void on_evaluation(int64_t step, double loss, const std::vector<DatasetLoss>& datasets) {
    (void)step;
    (void)loss;
    (void)datasets;
  }
};

}  // namespace tessera::train
