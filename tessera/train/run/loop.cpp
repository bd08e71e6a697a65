#include "tessera/train/run/loop.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "tessera/core/log.h"
#include "tessera/train/run/beside_output.h"
#include "tessera/train/run/replica_check.h"

namespace tessera::train {

TrainLoop::TrainLoop(const LoopParts& parts, EvaluationParts evaluated,
                     std::vector<std::unique_ptr<Reporter>> measuring)
    : parts_(parts),
      training_(parts.training),
      state_(training_.state()),
      requests_(parts.signals, *parts.mesh.world(), beside_output(training_.recipe().output_dir, "save")),
      reporters_(std::move(measuring)) {
  // Reporters that measure come first: those that write, on the first rank, find in the metrics what they
  // have added.
  for (auto& writing : parts_.output.reporters(training_)) reporters_.push_back(std::move(writing));
  reporters_.push_back(std::make_unique<ReplicaCheck>(training_, *parts_.mesh.world()));
  if (evaluated.is_any()) {
    evaluation_.emplace(
        training_, parts_.mesh, std::move(evaluated), [this](const auto& what) { tell(what); },
        [this] { return requests_.lets_evaluation_go_on(); });
  }
  requests_.ask_every(60.0 * training_.recipe().save_minutes);
  const config::Recipe& recipe = training_.recipe();
  const bool has_one = parts_.checkpoint != nullptr && recipe.saves_checkpoints();
  if (recipe.save_strategy == config::Cadence::No && !has_one) return;
  saving();
  // A stop can wait only where the run will save, and where there is something to go on from.
  parts_.signals.defer_stops();
}

bool TrainLoop::run() {
  const auto* const from = parts_.checkpoint;
  // The run before this one may have been stopped between a step and its evaluation.
  bool goes_on = from == nullptr || !from->manifest().state.value(kOwesEvaluation, false) || evaluate();
  while (goes_on && !training_.is_done()) goes_on = next_step();
  if (!goes_on) {
    tell_stop();
    return false;
  }
  training_.refuse_without_update();
  // There are no further steps, so the parameters stay where the result lies.
  training_.move_to_average(true);
  if (training_.recipe().load_best_model_at_end) take_best();
  return true;
}

// [Note: between two steps] After a step these follow, on all ranks in the same order:
//
// 1. A rollback, if the guard asks for one. Then the reporters hear of the step, of the line of metrics if
//    one is due, and that all has been told (make_step()).
// 2. requests_.agree() tells what any rank was asked for when the step began. It precedes the evaluation,
//    because a run that stops leaves its evaluation to the one that goes on.
// 3. The evaluation. It precedes the checkpoint, which then holds what it has changed in the state: the
//    best loss, early stopping, the learning rate on a plateau. A request to stop may end it, too.
// 4. The checkpoint, last of all, since what reporters have written of the step belongs to it. A run that
//    stops saves its last one here, with a note that the evaluation of the step is still owed.
//
// After the last step a request to stop comes too late: the run ends as usual, and its result is saved.
bool TrainLoop::next_step() {
  // The step hides the exchange of the requests.
  const Request request = requests_.agree([this] { make_step(); });
  const bool stops = (request == Request::Stop && !training_.is_done()) || !evaluate();
  // Early stopping may end the run between two lines of metrics: its last steps get a line, too.
  if (training_.has_stopped_early()) tell_line(training_.rest_of_line());
  save(request, stops);
  if (stops || training_.is_done()) return !stops;
  // A save may take long. Requests that came meanwhile need no further step: the checkpoint that is in place
  // answers them, also a request to stop.
  const bool is_saved = checkpoints_ && checkpoints_->saved_step() == state_.step;
  return !is_saved || requests_.agree() != Request::Stop;
}

void TrainLoop::make_step() {
  StepMetrics metrics = training_.step();
  if (metrics.rolls_back) roll_back();
  if (checkpoints_) metrics.save_stall_s = checkpoints_->take_stall();
  tell([&](Reporter& reporter) { reporter.on_step(state_, metrics); });
  tell_line(training_.add_to_line(metrics));
  tell([&](Reporter& reporter) { reporter.after_step(state_); });
}

void TrainLoop::save(Request request, bool stops) {
  // A run that saves no checkpoints by itself may still be asked to save one.
  if (request == Request::Save) saving().ask();
  if (request == Request::SaveByTime) {
    saving().ask_by_time();
    // There is something to go on from now, so a stop saves, too.
    parts_.signals.defer_stops();
  }
  if (stops) saving().ask_last();
  if (checkpoints_) checkpoints_->after_step();
}

Checkpoints& TrainLoop::saving() {
  if (!checkpoints_) {
    checkpoints_.emplace(training_, parts_.output, *parts_.mesh.world(), parts_.inputs,
                         parts_.checkpoint == nullptr ? "" : parts_.checkpoint->manifest().run);
  }
  return *checkpoints_;
}

// Goes back to the values of the newest checkpoint, from before the loss leapt. The data go on behind the
// step where it did, so that the run does not meet them again.
void TrainLoop::roll_back() {
  const int64_t step = checkpoints_ ? checkpoints_->roll_back() : -1;
  log::warn(step < 0 ? "this run has no checkpoint to roll back to: the update is skipped"
                     : "rolled back to checkpoint-" + std::to_string(step) +
                           "; the data continue from the current position");
}

// Loads the values that the best evaluation saw: they become the result.
void TrainLoop::take_best() {
  if (!state_.best.loss) return log::warn("nothing was evaluated: the result is that of the last step");
  const int64_t step = checkpoints_ ? checkpoints_->load_best() : -1;
  char value[32];
  std::snprintf(value, sizeof value, "%.4f", std::abs(*state_.best.loss));  // DecidingMetric::cost()
  const std::string best = "the best evaluation, after step " + std::to_string(state_.best.step) + " (" +
                           (evaluation_ ? evaluation_->deciding().name : "loss") + " " + value + ")";
  if (step < 0) {
    log::warn("there is no complete checkpoint of " + best + ": the result is that of the last step");
  } else {
    log::info("the result is that of " + best);
  }
}

void TrainLoop::tell(const std::function<void(Reporter&)>& what) const {
  for (const auto& reporter : reporters_) what(*reporter);
}

void TrainLoop::tell_line(const std::optional<StepMetrics>& line) const {
  if (line) tell([&](Reporter& reporter) { reporter.on_line(*line); });
}

void TrainLoop::tell_stop() const {
  parts_.signals.set_saved();
  parts_.signals.set_notice("");
  const config::Recipe& recipe = training_.recipe();
  const std::string step = std::to_string(state_.step);
  const char* name = sigabbrev_np(requests_.stop_signal());
  log::info("stopped after step " + step + " by " +
            (name == nullptr ? "a signal" : std::string("SIG") + name) + ": checkpoint-" + step +
            " is saved in " + recipe.output_dir + "; " +
            (recipe.auto_resume_from_checkpoints ? "the same command resumes from there"
                                                 : "auto_resume_from_checkpoints=true resumes from there"));
}

}  // namespace tessera::train
