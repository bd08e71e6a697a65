#include "tessera/train/reporters/checkpoints.h"

#include <cstdio>
#include <random>
#include <utility>

#include "tessera/checkpoint/save_checkpoint.h"
#include "tessera/core/log.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/strings.h"
#include "tessera/train/run_schedule.h"

namespace tessera::train {
namespace {

std::string new_run_name() {
  std::random_device random;
  char name[17];
  std::snprintf(name, sizeof name, "%08x%08x", random(), random());
  return name;
}

}  // namespace

Checkpoints::Checkpoints(Training& training, RunOutput& output, comm::Communicator& world, RunInputs inputs,
                         std::string run)
    : training_(training), output_(output), world_(world), inputs_(std::move(inputs)), run_(std::move(run)) {
  if (run_.empty()) run_ = world_.all_gather_string(new_run_name()).front();
}

void Checkpoints::after_step(const TrainState& state) {
  if (!is_saved(state.recipe, state.step, state.total_steps, training_.loader().steps_per_epoch(),
                state.ends_epoch())) {
    return;
  }
  const Timer timer;
  const auto tensors = training_.tensors();
  checkpoint::CheckpointNotes notes;
  notes.step = state.step;
  notes.run = run_;
  notes.state = to_json(inputs_);
  notes.state["training"] = to_json(state);
  notes.files = output_.logs();
  checkpoint::save_checkpoint(tensors, notes, state.recipe.output_dir, world_);
  output_.has_saved(state.step, run_);
  log::info("checkpoint-" + std::to_string(state.step) + " saved: " +
            format_bytes(checkpoint::checkpoint_bytes(tensors)) + " in " + format_duration(timer.seconds()));
}

}  // namespace tessera::train
