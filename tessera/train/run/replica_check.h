// Compares the copies of what a run carries.
#pragma once

#include "tessera/comm/communicator.h"
#include "tessera/train/reporters/reporter.h"
#include "tessera/train/step/training.h"

namespace tessera::train {

// Ranks that hold the same box of a tensor hold the same bits after every step; where they do not, memory, a
// processor or a link has failed.
class ReplicaCheck : public Reporter {
 public:
  // `training` and `world` outlive this object.
  ReplicaCheck(Training& training, comm::Communicator& world) : training_(training), world_(world) {}

  // Compares the copies after every replica_check_steps steps. Collective. Throws Error(Numerics, "REPLICAS")
  // on every rank, which names the tensor and the ranks that are alone with their values.
  void after_step(const TrainState& state) override;

 private:
  Training& training_;
  comm::Communicator& world_;
};

}  // namespace tessera::train
