// Tells the planner what it needs to know of a recipe and its model, and counts the memory of what it
// proposes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/config/recipe.h"
#include "tessera/models/common/causal_lm.h"
#include "tessera/planner/choice.h"
#include "tessera/planner/cluster.h"
#include "tessera/planner/model_work.h"
#include "tessera/train/run/estimate.h"

namespace tessera::train {

// Returns the work of a whole model on the meta device, as the mean over its blocks.
planner::ModelWork work_of(const models::CausalLM& model, const models::ModelConfig& config);

// Counts the states that the recipe's optimizer keeps of the model's parameters by their shapes, for a job in
// which all of them are trained.
void count_states(const config::Recipe& recipe, const models::CausalLM& model, planner::Job& job);

// Returns what the recipe asks for on `num_ranks` ranks. A step has global_batch_size sequences, or else
// micro_batch_size x gradient_accumulation_steps on each rank that the recipe's own sizes leave to read data.
// Documents count as full: sequence_len tokens. The optimizer's states are those of usual matrices, until
// count_states() counts them.
planner::Job job_of(const config::Recipe& recipe, int64_t num_ranks);

// Returns the parts of a choice that a plan keeps: precision, adapter and base, codes in place of parameters
// and gradients, and updates within the backward. Throws Error(Config) for float64, which the planner does
// not know.
planner::Choice kept_choice(const config::Recipe& recipe);

// Returns all that the recipe itself chooses on `num_ranks` ranks. Throws Error(Config) where its sizes do
// not make them, and as kept_choice().
planner::Choice choice_of(const config::Recipe& recipe, int64_t num_ranks);

// Reads the recipe with the lines of a choice and counts the memory of a rank (estimate_memory()), on any
// device: the recipe's own `device` is not asked. With a pipeline, of a rank of the first stage and of one of
// the last. Optimizer states that the choice puts elsewhere are counted on the device. Throws what
// load_recipe() and estimate_memory() throw.
std::vector<RankMemory> count_memory(const std::string& recipe, std::vector<std::string> overrides,
                                     const planner::Job& job, const planner::Choice& choice);

// Returns the lines of a choice as key=value.
std::vector<std::string> as_overrides(const std::vector<std::string>& lines);

}  // namespace tessera::train
