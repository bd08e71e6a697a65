// Saves what a run carries, as often as the recipe says.
#pragma once

#include <string>

#include "tessera/comm/communicator.h"
#include "tessera/train/reporters/reporter.h"
#include "tessera/train/resume.h"
#include "tessera/train/run_output.h"
#include "tessera/train/training.h"

namespace tessera::train {

// The last one of a rank's reporters: what the others tell of a step belongs to its checkpoint.
class Checkpoints : public Reporter {
 public:
  // `run`: of the checkpoint that the run goes on from; empty for a new one. What is given by reference
  // outlives this. Collective.
  Checkpoints(Training& training, RunOutput& output, comm::Communicator& world, RunInputs inputs,
              std::string run);

  // Collective. Throws what save_checkpoint() throws.
  void after_step(const TrainState& state) override;

 private:
  Training& training_;
  RunOutput& output_;
  comm::Communicator& world_;
  const RunInputs inputs_;
  std::string run_;
};

}  // namespace tessera::train
