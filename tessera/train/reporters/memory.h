// The memory of the rank that needs most, of the host and of its GPU.
#pragma once

#include "tessera/comm/communicator.h"
#include "tessera/train/reporters/reporter.h"

namespace tessera::train {

class Memory : public Reporter {
 public:
  // `world` outlives this.
  explicit Memory(comm::Communicator& world) : world_(world) {}

  // Collective. One rank alone waits for nothing.
  void on_step(const TrainState& state, StepMetrics& metrics) override;
  // The peak on a GPU begins anew.
  void on_line(const StepMetrics& line) override;

 private:
  comm::Communicator& world_;
};

}  // namespace tessera::train
