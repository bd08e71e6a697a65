// The memory of the rank that needs most.
#pragma once

#include "tessera/comm/communicator.h"
#include "tessera/train/reporters/reporter.h"

namespace tessera::train {

class Memory : public Reporter {
 public:
  // `world` outlives this.
  explicit Memory(comm::Communicator& world) : world_(world) {}

  // Collective.
  void on_step(const TrainState& state, StepMetrics& metrics) override;

 private:
  comm::Communicator& world_;
};

}  // namespace tessera::train
