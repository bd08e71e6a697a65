// How close steps come to their matrix products alone.
#pragma once

#include "tessera/parallel/device_mesh.h"
#include "tessera/train/reporters/reporter.h"
#include "tessera/train/setup.h"

namespace tessera::train {

class Light : public Reporter {
 public:
  // Measures the products of one token, at the size of a typical micro-batch, and tells how fast they are.
  // Collective.
  Light(const config::Recipe& recipe, const TrainedModel& trained, const parallel::DeviceMesh& mesh);

  void on_step(const TrainState& state, StepMetrics& metrics) override;

 private:
  double ranks_;  // that work side by side, so that the time of their share counts
  double seconds_per_token_ = 0.0, seconds_per_label_ = 0.0;
};

}  // namespace tessera::train
