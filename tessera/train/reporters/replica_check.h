// Holds the copies of what a run carries against each other.
#pragma once

#include "tessera/comm/communicator.h"
#include "tessera/train/reporters/reporter.h"
#include "tessera/train/training.h"

namespace tessera::train {

// Ranks that hold the same box of a tensor hold the same bits after every step; where they do not, memory, a
// processor or a link has failed.
class ReplicaCheck : public Reporter {
 public:
  // What is given by reference outlives this.
  ReplicaCheck(Training& training, comm::Communicator& world) : training_(training), world_(world) {}

  // After every replica_check_steps steps. Collective. Throws Error(Numerics, "REPLICAS") on every rank,
  // which names the tensor and the rank that is alone with its values.
  void after_step(const TrainState& state) override;

 private:
  Training& training_;
  comm::Communicator& world_;
};

}  // namespace tessera::train
