#include "tessera/train/run/checkpoints.h"

#include <cstdio>
#include <random>
#include <utility>

#include "tessera/comm/agreed_work.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/strings.h"
#include "tessera/io/file.h"
#include "tessera/train/step/best_evaluation.h"
#include "tessera/train/step/run_schedule.h"

namespace tessera::train {
namespace {

std::string new_run_name() {
  std::random_device random;
  char name[17];
  std::snprintf(name, sizeof name, "%08x%08x", random(), random());
  return name;
}

std::string name_of(int64_t step) { return "checkpoint-" + std::to_string(step); }

}  // namespace

Checkpoints::Checkpoints(Training& training, RunOutput& output, comm::Communicator& world, RunInputs inputs,
                         std::string run)
    : training_(training),
      output_(output),
      world_(world),
      inputs_(std::move(inputs)),
      run_(std::move(run)),
      saving_(world) {
  if (run_.empty()) run_ = world_.all_gather_string(new_run_name()).front();
}

void Checkpoints::on_step(const TrainState&, StepMetrics& metrics) {
  metrics.save_stall_s = std::exchange(stall_s_, 0.0);
}

void Checkpoints::ask_last(bool owes_evaluation) {
  is_asked_ = is_last_ = true;
  owes_evaluation_ = owes_evaluation;
}

void Checkpoints::after_step(const TrainState& state) {
  const bool is_asked = std::exchange(is_asked_, false);
  const bool is_last_step = state.has_stopped_early() && state.recipe.save_strategy != config::Cadence::No;
  const bool is_best = keeps_best(state.recipe) && state.best.step == state.step;
  const bool is_due = is_asked || is_last_step || is_best ||
                      is_saved(state.recipe, state.step, state.total_steps,
                               training_.data().steps_per_epoch(), state.ends_epoch());
  if (!is_due && !saving_.is_under_way()) return reserve(state);
  const Timer timer;
  if (saving_.is_under_way() && saving_.has_ended()) settle(state);
  if (is_due) save(state);
  stall_s_ += timer.seconds();
}

void Checkpoints::reserve(const TrainState& state) {
  if (std::exchange(has_reserved_, true) || state.recipe.save_strategy == config::Cadence::No) return;
  const auto carried = tensors();
  if (may_copy(carried, state)) saving_.reserve(carried);
}

void Checkpoints::save(const TrainState& state) {
  const Timer timer;
  if (saving_.is_under_way()) {
    log::info(name_of(state.step) + " waits for " + name_of(written_step_) +
              ", which is still being written");
    settle(state);
  }
  // settle() has saved this step already, if the save before it failed.
  if (saved_step_ == state.step) return;
  has_reserved_ = true;
  attempt(
      state.step,
      [&] {
        const auto carried = tensors();
        const bool is_copied = may_copy(carried, state);
        write(carried, state, is_copied);
        copied_s_ = timer.seconds();
        if (!is_copied) has_saved(state.step, state);
      },
      state);
}

void Checkpoints::write(const std::vector<checkpoint::StateTensor>& carried, const TrainState& state,
                        bool is_copied) {
  checkpoint::CheckpointNotes notes;
  notes.step = state.step;
  notes.run = run_;
  notes.state = to_json(inputs_);
  notes.state["training"] = to_json(state);
  notes.state[kOwesEvaluation] = owes_evaluation_;
  notes.state["only_model"] = state.recipe.save_only_model;
  notes.files = output_.logs();
  const int64_t best_step = keeps_best(state.recipe) ? state.best.step : 0;
  const auto after = [this, step = state.step, best_step] { output_.remove_outdated(step, run_, best_step); };
  if (is_copied) {
    saving_.start(carried, std::move(notes), state.recipe.output_dir, after);
    written_step_ = state.step;
  } else {
    saving_.save(carried, notes, state.recipe.output_dir, after);
  }
}

void Checkpoints::settle(const TrainState& state) {
  if (!saving_.is_under_way()) return;
  attempt(
      written_step_,
      [&] {
        saving_.wait();
        has_saved(written_step_, state);
      },
      state);
}

void Checkpoints::has_saved(int64_t step, const TrainState& state) {
  output_.has_saved(step, state.step);
  saved_step_ = step;
  log::info(name_of(step) + " saved: " + format_bytes(checkpoint::checkpoint_bytes(tensors())) +
            "; training waited " + format_duration(copied_s_) + " for it");
}

void Checkpoints::attempt(int64_t step, const std::function<void()>& work, const TrainState& state) {
  try {
    return work();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Storage) throw;
    const bool goes_on = !is_last_ && state.recipe.on_save_error == config::SaveErrorAction::Continue;
    log::warn(name_of(step) + " is not saved, " +
              (goes_on ? "training goes on (on_save_error: continue): "
                       : "and what training has now is saved instead: ") +
              error.what());
    if (goes_on) return;
  }
  const Timer timer;
  write(tensors(), state, false);
  copied_s_ = timer.seconds();
  has_saved(state.step, state);
}

std::vector<checkpoint::StateTensor> Checkpoints::tensors() {
  auto tensors = training_.tensors();
  if (training_.state().recipe.save_only_model) {
    std::erase_if(tensors, [](const auto& tensor) { return !tensor.name.starts_with(kParameterPrefix); });
  }
  return tensors;
}

bool Checkpoints::may_copy(const std::vector<checkpoint::StateTensor>& tensors, const TrainState& state) {
  // After the last step no steps go on beside the writing.
  if (!state.recipe.async_save || state.is_done() || is_last_) return false;
  if (saving_.has_memory_for(tensors)) return true;
  if (!std::exchange(has_told_of_memory_, true)) {
    log::warn("there is no memory for a copy of what a checkpoint holds (" +
              format_bytes(checkpoint::checkpoint_bytes(tensors)) +
              " on all ranks): the steps wait until it is written, as with async_save: false");
  }
  return false;
}

int64_t Checkpoints::roll_back(const TrainState& state) {
  settle(state);
  config::Recipe newest = state.recipe;
  newest.resume_from_checkpoint.clear();
  newest.auto_resume_from_checkpoints = true;
  const auto found = find_checkpoint(newest, world_);
  if (!found || found->manifest().run != run_) return -1;
  comm::AgreedWork work({&world_}, "read the checkpoint");
  work.run([&] { checkpoint::load_checkpoint(*found, training_.tensors()); });
  work.finish();
  return found->manifest().step;
}

int64_t Checkpoints::load_best(const TrainState& state) {
  settle(state);
  const int64_t step = state.best.step;
  if (step == state.step) return step;
  // The best checkpoint may lie where the run went on from.
  std::string path;
  comm::AgreedWork work({&world_}, "read the best checkpoint");
  work.run_on_first([&] {
    std::vector<std::string> folders = {state.recipe.output_dir};
    const std::string& from = state.recipe.resume_from_checkpoint;
    if (!from.empty()) folders.push_back(io::parent_path(from));
    for (const std::string& folder : folders) {
      const std::string candidate = io::join_path(folder, name_of(step));
      if (path.empty() && step > 0 && io::exists(candidate)) path = candidate;
    }
  });
  work.finish();
  path = world_.all_gather_string(path).front();
  if (path.empty()) return -1;
  try {
    const auto best = open_checkpoint(path, world_);
    if (best->manifest().run != run_) return -1;
    work.run([&] { checkpoint::load_checkpoint(*best, tensors(), kParameterPrefix); });
    work.finish();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Checkpoint) throw;
    log::warn(path + " is not whole: " + error.what());
    return -1;
  }
  return step;
}

}  // namespace tessera::train
