// Tells the memory of the rank that needs most, on the host and on its GPU.
#pragma once

#include "tessera/comm/communicator.h"
#include "tessera/train/reporters/reporter.h"

namespace tessera::train {

class Memory : public Reporter {
 public:
  // `world` outlives this.
  explicit Memory(comm::Communicator& world) : world_(world) {}

  // Adds the peaks to the metrics. Collective, but for a single rank, which waits for nothing.
  void on_step(const TrainState& state, StepMetrics& metrics) override;
  // Begins the peak on a GPU anew.
  void on_line(const StepMetrics& line) override;

 private:
  comm::Communicator& world_;
};

}  // namespace tessera::train
