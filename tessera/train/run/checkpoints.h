// Saves what a run carries, as often as the recipe says.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/checkpoint/background_save.h"
#include "tessera/comm/communicator.h"
#include "tessera/train/run/resume.h"
#include "tessera/train/run/run_output.h"
#include "tessera/train/step/training.h"

namespace tessera::train {

// Saves checkpoints. It comes after a rank's reporters, because what they tell of a step belongs to its
// checkpoint. With async_save, after_step() returns when a copy of the checkpoint is in memory, which is
// then written while the steps go on; the last checkpoint of a run is written at once. Where a save fails,
// what training has by then is written instead, and an error of that is thrown; with on_save_error: continue
// the failure is only warned of. Either happens after a later step, on every rank alike.
class Checkpoints {
 public:
  // `run` is the name of the run whose checkpoint this one goes on from; empty for a new run. `training`,
  // `output` and `world` outlive this object. Collective.
  Checkpoints(Training& training, RunOutput& output, comm::Communicator& world, RunInputs inputs,
              std::string run);

  // Returns the seconds for which checkpoints have held up the steps since the last call.
  double take_stall() { return std::exchange(stall_s_, 0.0); }
  // Makes the next after_step() save, whatever the recipe says.
  void ask() { is_asked_ = true; }
  // Makes the next after_step() save for a restart alone (save_minutes): the checkpoint goes when a newer one
  // or the result is in place, and training goes on where it cannot be written.
  void ask_by_time() { is_asked_by_time_ = true; }
  // Makes the next after_step() save the last checkpoint of a run that ends then: it is written at once, and
  // an error, after a second try, ends the run in any case. The evaluation of its step has not been made, and
  // comes first when a run goes on from there.
  void ask_last() { is_last_ = true; }
  // Saves where that is due or asked for, and looks after the save that is under way. Collective. Throws what
  // save_checkpoint() throws.
  void after_step();
  // Returns the step of the newest checkpoint that is written; 0 for none.
  int64_t saved_step() const { return saved_step_; }
  // Gives all tensors the values of the run's newest checkpoint, and returns its step. Returns -1, and
  // changes nothing, where there is none. Collective.
  int64_t roll_back();
  // Gives the parameters the values that the run's best evaluation saw, and returns its step. Returns -1, and
  // changes nothing, where its checkpoint is not whole. Collective.
  int64_t load_best();

 private:
  void save();
  // Takes the memory for copies, after the first step, which shows what memory the steps take.
  void reserve();
  // Waits for the save that is under way, if any, and tells of it.
  void settle();
  // Notes that the checkpoint of `step` is in place, and tells of it.
  void has_saved(int64_t step);
  // Writes what the run carries now: at once, or with `is_copied` as a copy that is written as the steps go
  // on.
  void write(const std::vector<checkpoint::StateTensor>& carried, bool is_copied);
  // Runs `work`, which saves the checkpoint of `step`. A storage error is warned of. Unless the run may do
  // without the checkpoint, as without one for a restart, what training has now, which may be of a later
  // step, is then written at once; an error of that ends the run.
  void attempt(int64_t step, bool is_for_restart, const std::function<void()>& work);
  // Returns what a checkpoint holds: with save_only_model the parameters alone.
  std::vector<checkpoint::StateTensor> tensors();
  // Tells whether a copy may be made. Warns once where there is no memory for it. Collective.
  bool may_copy(const std::vector<checkpoint::StateTensor>& tensors);

  Training& training_;
  const config::Recipe& recipe_;
  const TrainState& state_;
  RunOutput& output_;
  comm::Communicator& world_;
  const RunInputs inputs_;
  std::string run_;  // name of this run in its checkpoints
  checkpoint::BackgroundSave saving_;
  bool is_asked_ = false, is_asked_by_time_ = false, is_last_ = false;
  bool is_for_restart_ = false;  // the newest save serves a restart alone
  int64_t saved_step_ = 0;
  int64_t written_step_ = 0;             // step of the save that is under way
  bool is_written_for_restart_ = false;  // that one serves a restart alone
  double copied_s_ = 0.0;                // seconds for which that save has held up the steps
  double stall_s_ = 0.0;                 // seconds since the metrics of the last step
  bool has_reserved_ = false, has_told_of_memory_ = false;
};

}  // namespace tessera::train
