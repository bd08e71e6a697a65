// Compares the keys of a recipe with the adapter that it continues.
#pragma once

#include <functional>

#include "tessera/config/problems.h"
#include "tessera/config/recipe.h"
#include "tessera/models/common/causal_lm.h"
#include "tessera/peft/adapter_files.h"

namespace tessera::train {

// Runs `work`, which resolves the recipe's targets. Its Error(Config) is added to `problems` with the line of
// the key that it speaks of.
void attempt_targets(const config::KeyPlaces& places, config::Problems& problems,
                     const std::function<void()>& work);

// Compares the LoRA keys that the recipe gives with the adapter that it continues; those that differ are
// added to `problems`.
void check_continued(const config::Recipe& recipe, const models::CausalLM& model,
                     const peft::AdapterConfig& adapter, config::Problems& problems);

}  // namespace tessera::train
