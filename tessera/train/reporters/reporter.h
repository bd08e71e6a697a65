// Defines those who look on as a run goes: each tells of one thing.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/train/step/metrics.h"
#include "tessera/train/step/train_state.h"

namespace tessera::train {

// After every step a run calls these functions of all its reporters, one function after another in the order
// below. Every rank has the reporters that measure, as they talk to each other; only the first rank has those
// that write.
class Reporter {
 public:
  virtual ~Reporter() = default;
  // Called when the step is made. Adds to `metrics` what the reporter measures of it.
  virtual void on_step(const TrainState& state, StepMetrics& metrics) {
    (void)state;
    (void)metrics;
  }
  // Called when a line of metrics is due: `line` has the steps since the one before.
  virtual void on_line(const StepMetrics& line) { (void)line; }
  // Called when all has been told of the step, for what comes between two steps.
  virtual void after_step(const TrainState& state) { (void)state; }

  // These are called for an evaluation between two steps: on_evaluating() as it goes, with how many of its
  // `total` steps are done, and on_evaluation() when it is done.
  virtual void on_evaluating(int64_t done, int64_t total) {
    (void)done;
    (void)total;
  }
  virtual void on_evaluation(int64_t step, const Evaluated& evaluated) {
    (void)step;
    (void)evaluated;
  }
};

}  // namespace tessera::train
