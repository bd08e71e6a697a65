// Makes the steps that `tessera bench train` trains on.
#pragma once

#include <functional>

#include "tessera/config/recipe.h"
#include "tessera/data/step_source.h"
#include "tessera/models/common/model_config.h"
#include "tessera/parallel/device_mesh.h"

namespace tessera::train {

// Returns a function that gives this rank's part of one step after another. With `trains_on_data` the steps
// are those of the recipe's datasets, dealt as training deals them. Otherwise each step has
// gradient_accumulation_steps micro-batches of micro_batch_size documents of sequence_len random tokens, the
// same ones at every step and for any number of ranks. The recipe outlives the function. Not collective.
// Throws what load_recipe_tokenizer() and read_recipe_data() throw.
std::function<data::Step()> bench_steps(const config::Recipe& recipe, bool trains_on_data,
                                        const models::ModelConfig& model, const parallel::DeviceMesh& mesh);

}  // namespace tessera::train
