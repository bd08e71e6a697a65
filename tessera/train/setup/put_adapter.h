// Puts the adapter of a recipe on the model.
#pragma once

#include "tessera/config/problems.h"
#include "tessera/config/recipe.h"
#include "tessera/models/common/assembly.h"
#include "tessera/peft/lora.h"

namespace tessera::train {

// The adapter of a run, if it has one.
struct AdapterSetup {
  peft::LoraOptions options;
  peft::LoraTargets targets;
};

// Quantises the weights beside the adapter, if the recipe or the files ask for it, and puts the adapter on
// the model: a new one, or that of lora_model_dir, of which only the dropout and the task are the recipe's.
// Throws Error(Model); Errors(Config) are added to `problems`, and the adapter is not whole then.
AdapterSetup put_adapter(models::Assembly& assembly, const config::Recipe& recipe,
                         config::Problems& problems);

}  // namespace tessera::train
