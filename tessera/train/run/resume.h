// Finds, checks and reads the checkpoint from which a run goes on.
#pragma once

#include <memory>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "tessera/checkpoint/sharded_checkpoint.h"
#include "tessera/comm/communicator.h"
#include "tessera/config/recipe.h"
#include "tessera/train/setup/plan_model.h"
#include "tessera/train/step/train_state.h"

namespace tessera::train {

// Everything from which a run's numbers come, as its checkpoints note it.
struct RunInputs {
  std::string recipe;             // text of the resolved recipe
  std::string dtype;              // of the computation
  std::string rows;               // hash of the training rows and of what decides their order
  std::string model;              // hash of the base model, as far as the run does not train it
  std::string libraries;          // program and libraries that it ran with
  int64_t global_batch_size = 0;  // sequences of a step over all ranks
};
nlohmann::ordered_json to_json(const RunInputs& inputs);

// Tells whether a run may go on from checkpoints that lie in its output_dir.
bool continues_output(const config::CheckpointConfig& keys);

// Opens the checkpoint that resume_from_checkpoint names, or with auto_resume_from_checkpoints the newest
// whole one in output_dir. Returns null for a run from the beginning. All values are read once, shared among
// the ranks, and compared with their hashes. A checkpoint that is not whole is warned of and passed over in
// favour of the one before. Throws on every rank: Error(Checkpoint) for one that the keys name, and
// Error(Checkpoint, "NONE-WHOLE") where output_dir has checkpoints and none is whole. Collective.
std::shared_ptr<const checkpoint::ShardedCheckpoint> find_checkpoint(const config::CheckpointConfig& keys,
                                                                     comm::Communicator& world);

// Opens the checkpoint in this folder and compares all of its values with their hashes, shared among the
// ranks. Throws on every rank where it is not whole. Collective.
std::shared_ptr<const checkpoint::ShardedCheckpoint> open_checkpoint(const std::string& path,
                                                                     comm::Communicator& world);

// Returns the recipe with the dtype that `auto` came to in the run of the checkpoint.
config::Recipe with_dtype_of(config::Recipe recipe, const checkpoint::ShardedCheckpoint& checkpoint);

// Returns the recipe with the gradient_accumulation_steps that keep the global batch of the checkpoint's run
// where `readers` ranks read different data, which is told where they change. A recipe that gives
// global_batch_size goes on with that one; another one is warned of. Throws Error(Config, "GLOBAL-BATCH")
// where the batch cannot be kept.
config::Recipe with_batch_of(config::Recipe recipe, const checkpoint::ShardedCheckpoint& checkpoint,
                             int64_t readers);

// Throws unless the checkpoint's run had the same rows in the same order (Error(Data, "CHANGED"); a warning
// with allow_data_change), the same base model, and parameters that the model of `setup`, on the meta
// device, has and changes (Error(Checkpoint)). Warns of other keys that change the numbers of the steps and
// differ from that run's.
void check_resumable(const checkpoint::ShardedCheckpoint& checkpoint, const RunInputs& inputs,
                     const ModelSetup& setup, const config::CheckpointConfig& keys);

// Does the part of check_resumable() that the values need: throws unless the base model has the fingerprint
// that the checkpoint notes, and the parameters that the run changes are those that it holds.
void check_same_parameters(const checkpoint::ShardedCheckpoint& checkpoint,
                           const std::string& model_fingerprint, const ModelSetup& setup);

// Lets the planned model take its values from the checkpoint, where that holds them.
void take_values_of(const std::shared_ptr<const checkpoint::ShardedCheckpoint>& checkpoint,
                    PlannedModel& planned);

// Key of a checkpoint's notes, beside the state: true where the evaluation of the last step is still to be
// made.
inline constexpr const char* kOwesEvaluation = "owes_evaluation";
// Key of another note: true for a checkpoint that only serves a restart (save_minutes).
inline constexpr const char* kForRestart = "for_restart";
// Reads the state that the checkpoint notes. Throws Error(Checkpoint, "MANIFEST") where it is not sound.
TrainState state_of(const checkpoint::ShardedCheckpoint& checkpoint);
// Throws Error(Checkpoint, "MANIFEST") unless all that a run notes in a checkpoint is of its type, and of the
// checkpoint's step.
void check_notes(const checkpoint::ShardedCheckpoint& checkpoint);

}  // namespace tessera::train
