// How close steps come to their matrix products alone, and to what the processors can do at all.
#pragma once

#include "tessera/parallel/device_mesh.h"
#include "tessera/train/reporters/reporter.h"
#include "tessera/train/setup.h"
#include "tessera/train/speed_of_light.h"

namespace tessera::train {

class Light : public Reporter {
 public:
  // Measures the products of one token, at the size of a typical micro-batch, and tells how fast they are;
  // and the rate of a large product on all ranks at once, which stands for their peak. Collective.
  //
  // Model FLOPs utilization (MFU; Chowdhery et al., "PaLM", 2022) is model_flops() of a step over its time,
  // as a share of the peak; hardware FLOPs utilization (HFU) counts recomputed_flops() too. Of the output
  // projection both count the tokens with a label, the only ones that a step projects. Operations in fp8
  // count by their own peak: one as the share of one of the others that takes as long there.
  Light(const config::Recipe& recipe, const TrainedModel& trained, const parallel::DeviceMesh& mesh);

  void on_step(const TrainState& state, StepMetrics& metrics) override;

 private:
  void count_flops(const config::Recipe& recipe, const TrainedModel& trained,
                   const parallel::DeviceMesh& mesh);

  double ranks_;  // that work side by side, so that the time of their share counts
  double seconds_per_token_ = 0.0, seconds_per_label_ = 0.0;
  FlopCount model_, recomputed_;  // of all ranks along tp and pp
  double peak_ = 0.0;             // operations a second, of all ranks, but for those in fp8
  double e4m3_weight_ = 1.0;      // that peak over the one in fp8
};

}  // namespace tessera::train
