// Tells how close steps come to their matrix products alone, and to what the processors can do at all.
#pragma once

#include "tessera/measure/speed_of_light.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/train/reporters/reporter.h"
#include "tessera/train/setup/setup.h"

namespace tessera::train {

class Light : public Reporter {
 public:
  // Measures how long the products of one token take, at the size of a typical micro-batch, and tells how
  // fast they would run; measures the rate of a large product on all ranks at once, too, which stands for
  // their peak. Collective.
  //
  // Model FLOPs utilization (MFU; Chowdhery et al., "PaLM", 2022) is model_flops() of a step over its time,
  // as a share of the peak; hardware FLOPs utilization (HFU) counts recomputed_flops() too. For the output
  // projection both count the tokens with a label, the only ones that a step projects. Operations in fp8 have
  // a peak of their own: each counts as the share of another operation that takes as long.
  Light(const config::Recipe& recipe, const TrainedModel& trained, const parallel::DeviceMesh& mesh);

  // Returns the operations a second of a large product on all ranks at once, other than in fp8.
  double peak() const { return peak_; }

  // Adds sol, mfu and hfu to the metrics. Not collective.
  void on_step(const TrainState& state, StepMetrics& metrics) override;

 private:
  void count_flops(const config::Recipe& recipe, const TrainedModel& trained,
                   const parallel::DeviceMesh& mesh);

  double ranks_;  // along dp and cp, which share the tokens of a step
  double seconds_per_token_ = 0.0, seconds_per_label_ = 0.0;
  measure::FlopCount model_, recomputed_;  // of all ranks along tp and pp together
  double peak_ = 0.0;                      // operations a second of all ranks together, other than in fp8
  double e4m3_weight_ = 1.0;               // peak_ over the peak in fp8
};

}  // namespace tessera::train
