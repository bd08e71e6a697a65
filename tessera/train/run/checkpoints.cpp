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
      recipe_(training.recipe()),
      state_(training.state()),
      output_(output),
      world_(world),
      inputs_(std::move(inputs)),
      run_(std::move(run)),
      saving_(world) {
  if (run_.empty()) run_ = world_.all_gather_string(new_run_name()).front();
}

void Checkpoints::after_step() {
  const bool saves_by_step = recipe_.save_strategy != config::Cadence::No;
  const bool is_last_step = (is_last_ || training_.has_stopped_early()) && saves_by_step;
  const bool is_best = keeps_best(recipe_) && state_.best.step == state_.step;
  const bool is_for_itself = std::exchange(is_asked_, false) || is_last_step || is_best ||
                             is_saved(recipe_, state_.step, training_.total_steps(),
                                      training_.data().steps_per_epoch(), state_.ends_epoch());
  const bool is_for_restart = std::exchange(is_asked_by_time_, false) && !training_.is_done();
  const bool is_due = is_for_itself || is_for_restart || is_last_;
  if (!is_due && !saving_.is_under_way()) return reserve();
  const Timer timer;
  // Nothing looks after a save any more behind the last step.
  if (saving_.is_under_way() && (saving_.has_ended() || training_.is_done())) settle();
  if (is_due) {
    is_for_restart_ = !is_for_itself;
    save();
  }
  stall_s_ += timer.seconds();
}

void Checkpoints::reserve() {
  if (std::exchange(has_reserved_, true) || recipe_.save_strategy == config::Cadence::No) return;
  const auto carried = tensors();
  if (may_copy(carried)) saving_.reserve(carried);
}

void Checkpoints::save() {
  const Timer timer;
  if (saving_.is_under_way()) {
    log::info(name_of(state_.step) + " waits for " + name_of(written_step_) +
              ", which is still being written");
    settle();
  }
  // settle() has saved this step already, if the save before it failed.
  if (saved_step_ == state_.step) return;
  has_reserved_ = true;
  attempt(state_.step, is_for_restart_, [&] {
    const auto carried = tensors();
    const bool is_copied = may_copy(carried);
    write(carried, is_copied);
    copied_s_ = timer.seconds();
    if (!is_copied) has_saved(state_.step);
  });
}

void Checkpoints::write(const std::vector<checkpoint::StateTensor>& carried, bool is_copied) {
  // The values are copied or written before this returns.
  const AtAverage average(training_);
  checkpoint::CheckpointNotes notes;
  notes.step = state_.step;
  notes.run = run_;
  notes.state = to_json(inputs_);
  notes.state["training"] = to_json(state_);
  notes.state[kOwesEvaluation] = is_last_;
  notes.state["only_model"] = recipe_.save_only_model;
  notes.state[kForRestart] = is_for_restart_;
  // One rank reads the logs. The others must not begin what it gives up.
  comm::AgreedWork reading({&world_}, "read the logs of the run");
  reading.run([&] { notes.files = output_.logs(); });
  reading.finish();
  const int64_t best_step = keeps_best(recipe_) ? state_.best.step : 0;
  const auto after = [this, step = state_.step, best_step] {
    output_.remove_outdated(step, run_, best_step);
  };
  if (is_copied) {
    saving_.start(carried, std::move(notes), recipe_.output_dir, after);
    written_step_ = state_.step;
    is_written_for_restart_ = is_for_restart_;
  } else {
    saving_.save(carried, notes, recipe_.output_dir, after);
  }
}

void Checkpoints::settle() {
  if (!saving_.is_under_way()) return;
  attempt(written_step_, is_written_for_restart_, [&] {
    saving_.wait();
    has_saved(written_step_);
  });
}

void Checkpoints::has_saved(int64_t step) {
  output_.has_saved(step, state_.step);
  saved_step_ = step;
  log::info(name_of(step) + " saved: " + format_bytes(checkpoint::checkpoint_bytes(tensors())) +
            "; training waited " + format_duration(copied_s_) + " for it");
}

void Checkpoints::attempt(int64_t step, bool is_for_restart, const std::function<void()>& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Storage) throw;
    const bool goes_on =
        !is_last_ && (is_for_restart || recipe_.on_save_error == config::SaveErrorAction::Continue);
    log::warn(name_of(step) + " could not be saved; " +
              (goes_on ? "training continues: " : "the current state is saved instead: ") + error.what());
    if (goes_on) return;
  }
  const Timer timer;
  write(tensors(), false);
  copied_s_ = timer.seconds();
  has_saved(state_.step);
}

std::vector<checkpoint::StateTensor> Checkpoints::tensors() {
  auto tensors = training_.tensors();
  if (recipe_.save_only_model) {
    std::erase_if(tensors, [](const auto& tensor) { return !tensor.name.starts_with(kParameterPrefix); });
  }
  return tensors;
}

bool Checkpoints::may_copy(const std::vector<checkpoint::StateTensor>& tensors) {
  // After the last step no steps go on beside the writing.
  if (!recipe_.async_save || training_.is_done() || is_last_) return false;
  // A copy would take the memory that states on a drive save. They are written one after another instead.
  if (recipe_.offload_optimizer_device == config::OffloadDevice::Nvme && !recipe_.save_only_model)
    return false;
  if (saving_.has_memory_for(tensors)) return true;
  if (!std::exchange(has_told_of_memory_, true)) {
    log::warn("there is not enough memory for a copy of a checkpoint's content (" +
              format_bytes(checkpoint::checkpoint_bytes(tensors)) +
              " on all ranks): training waits until a checkpoint is written, as with async_save: false");
  }
  return false;
}

int64_t Checkpoints::roll_back() {
  settle();
  const auto found =
      find_checkpoint({.output_dir = recipe_.output_dir, .auto_resume_from_checkpoints = true}, world_);
  if (!found || found->manifest().run != run_) return -1;
  const AtAverage average(training_);
  comm::AgreedWork work({&world_}, "read the checkpoint");
  work.run([&] { checkpoint::load_checkpoint(*found, training_.tensors()); });
  work.finish();
  return found->manifest().step;
}

int64_t Checkpoints::load_best() {
  settle();
  const int64_t step = state_.best.step;
  if (step == state_.step) return step;
  // The best checkpoint may lie where the run went on from.
  std::string path;
  comm::AgreedWork work({&world_}, "read the best checkpoint");
  work.run_on_first([&] {
    std::vector<std::string> folders = {recipe_.output_dir};
    const std::string& from = recipe_.resume_from_checkpoint;
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
    log::warn(path + " is incomplete or damaged: " + error.what());
    return -1;
  }
  return step;
}

}  // namespace tessera::train
