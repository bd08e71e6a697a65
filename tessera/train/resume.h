// The checkpoint that a run goes on from.
#pragma once

#include <memory>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "tessera/checkpoint/sharded_checkpoint.h"
#include "tessera/comm/communicator.h"
#include "tessera/config/recipe.h"
#include "tessera/models/common/causal_lm.h"
#include "tessera/train/setup.h"
#include "tessera/train/train_state.h"

namespace tessera::train {

// What a run's numbers come from, as its checkpoints note it.
struct RunInputs {
  std::string recipe;     // its text, as resolved
  std::string dtype;      // of the computation
  std::string rows;       // hash of the training rows and of what decides their order
  std::string model;      // hash of the base model, as far as the run does not train it
  std::string libraries;  // what it ran with
};
nlohmann::ordered_json to_json(const RunInputs& inputs);

// Whether the recipe may go on from checkpoints that lie in its output_dir.
bool continues_output(const config::Recipe& recipe);

// resume_from_checkpoint, or with auto_resume_from_checkpoints the newest whole checkpoint in output_dir;
// null for a run from the beginning. All values are read once, shared among the ranks, and held against their
// hashes. A checkpoint that is not whole is told and passed over in favour of the one before. Throws on every
// rank Error(Checkpoint) for one that the recipe names, and "NONE-WHOLE" where there are some and none is.
// Collective.
std::shared_ptr<const checkpoint::ShardedCheckpoint> find_checkpoint(const config::Recipe& recipe,
                                                                     comm::Communicator& world);

// The checkpoint in this folder, all of whose values are held against their hashes, shared among the ranks.
// Throws on every rank where it is not whole. Collective.
std::shared_ptr<const checkpoint::ShardedCheckpoint> open_checkpoint(const std::string& path,
                                                                     comm::Communicator& world);

// The recipe with the type of the computation that `auto` came to in the run of the checkpoint.
config::Recipe with_dtype_of(config::Recipe recipe, const checkpoint::ShardedCheckpoint& checkpoint);

// Throws unless the checkpoint's run had the same rows in the same order (Error(Data, "CHANGED"); a warning
// with allow_data_change), the same base model, and parameters that `model`, on the meta device, has and
// trains (Error(Checkpoint)). Warns of every other key of the recipe that changes the numbers.
void check_resumable(const checkpoint::ShardedCheckpoint& checkpoint, const RunInputs& inputs,
                     const models::CausalLM& model, const config::Recipe& recipe);

// The part of check_resumable() that the values need: the base model is that whose fingerprint the checkpoint
// notes, and the trained parameters of `model` are those that it holds.
void check_same_parameters(const checkpoint::ShardedCheckpoint& checkpoint,
                           const std::string& model_fingerprint, const models::CausalLM& model);

// From now on the model's values are the checkpoint's, where it holds them.
void take_values_of(const std::shared_ptr<const checkpoint::ShardedCheckpoint>& checkpoint,
                    PlannedModel& planned);

// Beside the state, whether the evaluation of the last step is still to be made.
inline constexpr const char* kOwesEvaluation = "owes_evaluation";
TrainState state_of(const checkpoint::ShardedCheckpoint& checkpoint);

}  // namespace tessera::train
