// The options of an adapter and the keys of a recipe that stand for them.
#pragma once

#include "tessera/config/recipe.h"
#include "tessera/peft/lora.h"

namespace tessera::train {

// Returns the options of the adapter that these keys, or the keys of the recipe, stand for; the former leave
// the method to the latter.
peft::LoraOptions lora_options(const config::LoraConfig& keys);
peft::LoraOptions adapter_options(const config::Recipe& recipe);
// Returns the recipe with its adapter's keys as these options have them, but for the kind of the adapter.
config::Recipe with_lora_options(config::Recipe recipe, const peft::LoraOptions& options);

}  // namespace tessera::train
