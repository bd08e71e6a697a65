// Tells of a rank that holds the others up.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/measure/straggler_watch.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/train/reporters/reporter.h"

namespace tessera::train {

// Tells of stragglers. Every rank has one. Every few seconds the ranks exchange where their time went, while
// the next step runs; the first rank's log names a straggler, and metrics.jsonl has it as long as it is one.
class Stragglers : public Reporter {
 public:
  // `mesh` outlives this object. Collective.
  explicit Stragglers(const parallel::DeviceMesh& mesh);
  // Takes in the times of the step, and begins or ends an exchange where one is due. Collective.
  void on_step(const TrainState& state, StepMetrics& metrics) override;

 private:
  void begin_exchange();
  void finish_exchange();
  void tell(const std::optional<measure::Straggler>& now);

  comm::Communicator& world_;
  std::vector<std::string> ranks_;  // such as "rank 1 (process 77 on n01)"
  measure::StragglerWatch watch_;
  StepTimes times_ = {};  // sums over the steps of the window, as layers_ and window_s_
  double layers_ = 0.0, window_s_ = 0.0;
  int64_t num_steps_ = 0;
  at::Tensor own_, all_;
  std::shared_ptr<comm::Work> exchange_;
  std::optional<measure::Straggler> straggler_;
};

}  // namespace tessera::train
