// Keeps the notice of an end at once up to date with the last step.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "tessera/train/reporters/reporter.h"
#include "tessera/train/run/run_signals.h"

namespace tessera::train {

class LastStep : public Reporter {
 public:
  // `rest` returns what follows "interrupted after step 12". `signals` outlive this object.
  LastStep(RunSignals& signals, std::function<std::string()> rest)
      : signals_(signals), rest_(std::move(rest)) {}

  void on_step(const TrainState& state, StepMetrics&) override {
    signals_.set_notice("interrupted after step " + std::to_string(state.step) + rest_());
  }

 private:
  RunSignals& signals_;
  std::function<std::string()> rest_;
};

}  // namespace tessera::train
