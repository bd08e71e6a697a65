// Trains without any output: a model, its data and its optimizer, one step after another.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tessera/checkpoint/state_tensor.h"
#include "tessera/config/recipe.h"
#include "tessera/data/step_source.h"
#include "tessera/optim/optimizer.h"
#include "tessera/optim/schedule.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/train/setup/setup.h"
#include "tessera/train/step/metrics.h"
#include "tessera/train/step/train_state.h"

namespace tessera::train {

// Prefixes of the names of Training::tensors().
inline constexpr const char* kParameterPrefix = "parameter/";
inline constexpr const char* kOptimizerPrefix = "optimizer/";

// Returns how many steps a run of the recipe makes: max_steps, or as many as num_epochs have, at least one.
int64_t total_steps_of(const config::BatchConfig& keys, const data::StepSource& data);

// Makes the recipe's optimizer of the model's trained tiles.
std::unique_ptr<optim::Optimizer> make_optimizer(const config::Recipe& recipe, const TrainedModel& trained);

// A model, its data and its optimizer, between two steps of a run.
class Training {
 public:
  // Begins at step 0. `recipe` is the resolved one: its dtype is not Auto. `data` deals the training rows to
  // the ranks of `mesh`, which outlives this object.
  Training(config::Recipe recipe, const parallel::DeviceMesh& mesh, std::unique_ptr<data::StepSource> data,
           TrainedModel trained);

  const config::Recipe& recipe() const { return recipe_; }
  int64_t total_steps() const { return total_steps_; }
  const TrainState& state() const { return state_; }
  // has_stopped_early(): the evaluations have ended the run. is_done(): it makes no further step.
  bool has_stopped_early() const { return state_.early_stopping.has_ended(recipe_); }
  bool is_done() const { return state_.step >= total_steps_ || has_stopped_early(); }
  TrainedModel& trained() { return trained_; }
  const TrainedModel& trained() const { return trained_; }
  const data::StepSource& data() const { return *data_; }
  // Returns the seconds that the steps of this process have waited for rows.
  double data_wait_s() const { return data_wait_s_; }
  // Returns what this rank's updates have moved to and from a drive; nothing where no states lie there.
  std::optional<optim::StateTraffic> state_traffic() const { return optimizer_->traffic(); }

  // Makes the next step and returns what it has measured itself. Collective. Throws what the data source,
  // run_step(), StepGuard::judge() and LossScaler::update() throw.
  StepMetrics step();
  // Throws Error(Numerics, "NO-UPDATE") where steps were made and every one overflowed float16.
  void refuse_without_update() const;
  // Adds the step to the coming line of metrics.jsonl, and returns the line where it is due.
  std::optional<StepMetrics> add_to_line(const StepMetrics& step);
  // Returns the line of the steps since the last one, if any, for a run that ends before its last step.
  std::optional<StepMetrics> rest_of_line();
  // Takes in the results of an evaluation, of which metric_for_best_model chooses the one that decides.
  // Returns whether the run ends with it (early_stopping_patience). Throws what deciding_metric() throws.
  bool note_evaluation(const Evaluated& evaluated);

  // Returns the trained parameters ("parameter/<name>"), the weights that restarts of an adapter change, and
  // the optimizer's states
  // ("optimizer/<name>/<state>"), in the same order on all ranks. They refer to this object.
  std::vector<checkpoint::StateTensor> tensors();
  // See optim::Optimizer::move_to_average().
  bool is_at_average() const { return is_at_average_; }
  void move_to_average(bool is_average);
  // Goes on from `state`, of a run of the same model and data, by its own recipe. The caller sets the values
  // of tensors(). Throws Error(Checkpoint) for a position outside the data.
  void go_on(const TrainState& state);

 private:
  const config::Recipe recipe_;
  const parallel::DeviceMesh& mesh_;
  std::unique_ptr<data::StepSource> data_;
  const int64_t total_steps_;
  TrainedModel trained_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::Schedule schedule_;
  TrainState state_;
  double data_wait_s_ = 0.0;
  bool is_at_average_ = false;
};

// While one lives, the parameters have the values that are evaluated, saved and loaded; afterwards they are
// where they were. It matters to optimizers that have an average.
class AtAverage {
 public:
  explicit AtAverage(Training& training) : training_(training), was_there_(training.is_at_average()) {
    training_.move_to_average(true);
  }
  ~AtAverage() { training_.move_to_average(was_there_); }
  AtAverage(const AtAverage&) = delete;
  AtAverage& operator=(const AtAverage&) = delete;

 private:
  Training& training_;
  const bool was_there_;
};

}  // namespace tessera::train
