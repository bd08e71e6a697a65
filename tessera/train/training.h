// A run without its output: a model, its data and its optimizer, one step after the other.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tessera/checkpoint/state_tensor.h"
#include "tessera/data/step_source.h"
#include "tessera/optim/optimizer.h"
#include "tessera/optim/schedule.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/train/metrics.h"
#include "tessera/train/setup.h"
#include "tessera/train/train_state.h"

namespace tessera::train {

// What the names of Training::tensors() begin with.
inline constexpr const char* kParameterPrefix = "parameter/";
inline constexpr const char* kOptimizerPrefix = "optimizer/";

class Training {
 public:
  // At step 0. `recipe`: as resolved; `data` deals the training rows to the ranks of `mesh`, which outlives
  // this.
  Training(config::Recipe recipe, const parallel::DeviceMesh& mesh, std::unique_ptr<data::StepSource> data,
           TrainedModel trained);

  const TrainState& state() const { return state_; }
  TrainedModel& trained() { return trained_; }
  const TrainedModel& trained() const { return trained_; }
  const data::StepSource& data() const { return *data_; }
  // That the steps of this process have waited for rows.
  double data_wait_s() const { return data_wait_s_; }

  // The next step: what it measured itself. Collective. Throws what run_step() throws.
  StepMetrics step();
  // Takes the step into the line of metrics.jsonl to come; the line, where it is due.
  std::optional<StepMetrics> add_to_line(const StepMetrics& step);
  // The line of the steps since the last one, for a run that ends before its last step.
  std::optional<StepMetrics> rest_of_line();
  // Takes in the losses of an evaluation, of which metric_for_best_model chooses the one that decides:
  // whether the run ends with it (early_stopping_patience). Throws what deciding_loss() throws.
  bool note_evaluation(double loss, const std::vector<DatasetLoss>& datasets);

  // The trained parameters ("parameter/<name>") and the optimizer's states ("optimizer/<name>/<state>"), in
  // the same order on all ranks.
  std::vector<checkpoint::StateTensor> tensors();
  // Goes on from `state`, of a run of the same model and data, with its own recipe and number of steps. The
  // values of tensors() are the caller's to set. Throws Error(Checkpoint) for a position outside the data.
  void go_on(const TrainState& state);

 private:
  const parallel::DeviceMesh& mesh_;
  std::unique_ptr<data::StepSource> data_;
  TrainedModel trained_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::Schedule schedule_;
  TrainState state_;
  double data_wait_s_ = 0.0;
};

}  // namespace tessera::train
