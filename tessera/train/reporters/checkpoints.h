// Saves what a run carries, as often as the recipe says.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tessera/checkpoint/background_save.h"
#include "tessera/comm/communicator.h"
#include "tessera/train/reporters/reporter.h"
#include "tessera/train/resume.h"
#include "tessera/train/run_output.h"
#include "tessera/train/training.h"

namespace tessera::train {

// The last one of a rank's reporters: what the others tell of a step belongs to its checkpoint. With
// async_save a checkpoint is a copy in memory when after_step() returns, and is written as the steps go on;
// the last one is written at once. What goes wrong is thrown after a second try, or told with on_save_error:
// continue, after the next step on every rank.
class Checkpoints : public Reporter {
 public:
  // `run`: of the checkpoint that the run goes on from; empty for a new one. What is given by reference
  // outlives this. Collective.
  Checkpoints(Training& training, RunOutput& output, comm::Communicator& world, RunInputs inputs,
              std::string run);

  // Tells how long the steps have waited for checkpoints.
  void on_step(const TrainState& state, StepMetrics& metrics) override;
  // The next after_step() saves, whatever the recipe says.
  void ask() { is_asked_ = true; }
  // The same for a run that ends then: the checkpoint is written at once, and an error, after a second try,
  // ends the run in any case. `owes_evaluation`: the one of its step has not been made, and comes first when
  // a run goes on from there.
  void ask_last(bool owes_evaluation);
  // Collective. Throws what save_checkpoint() throws.
  void after_step(const TrainState& state) override;
  // The step of the newest checkpoint that is written; 0 for none.
  int64_t saved_step() const { return saved_step_; }
  // Gives all tensors the values of the run's newest checkpoint, and returns its step; -1, and nothing is
  // done, where there is none. Collective.
  int64_t roll_back(const TrainState& state);
  // Gives the parameters the values that the run's best evaluation saw, and returns its step; -1, and nothing
  // is done, where its checkpoint is not whole. Collective.
  int64_t load_best(const TrainState& state);

 private:
  void save(const TrainState& state);
  // After the first step, when it shows what memory the steps take.
  void reserve(const TrainState& state);
  // Waits for what is being written, and tells of it. Does nothing where nothing is.
  void settle(const TrainState& state);
  void has_saved(int64_t step, const TrainState& state);
  // What is carried now, written at once or as a copy that is written as the steps go on.
  void write(const std::vector<checkpoint::StateTensor>& carried, const TrainState& state, bool is_copied);
  // Runs what saves checkpoint number `step`. An error of the disk is told; unless the run may do without,
  // what it has now, which may be later, is written at once, and an error of that ends the run.
  void attempt(int64_t step, const std::function<void()>& work, const TrainState& state);
  std::vector<checkpoint::StateTensor> tensors();
  bool may_copy(const std::vector<checkpoint::StateTensor>& tensors, const TrainState& state);

  Training& training_;
  RunOutput& output_;
  comm::Communicator& world_;
  const RunInputs inputs_;
  std::string run_;
  checkpoint::BackgroundSave saving_;
  bool is_asked_ = false, is_last_ = false, owes_evaluation_ = false;
  int64_t saved_step_ = 0;
  int64_t written_step_ = 0;  // of what is under way
  double copied_s_ = 0.0;     // what it has held up the steps
  double stall_s_ = 0.0;      // since the last step
  bool has_reserved_ = false, has_told_of_memory_ = false;
};

}  // namespace tessera::train
