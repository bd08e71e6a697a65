// Recompute instead of keep: activation checkpointing of whole modules.
#pragma once

#include <memory>

#include <torch/nn/module.h>

namespace tessera::parallel {

// From now on the module, when run through nn::call(), keeps only its input and runs its forward again in
// the backward pass (Chen et al., "Training deep nets with sublinear memory cost", 2016). The forward must
// be a pure function of its input, its parameters and nn::RandomScope. Apply before fully_shard(), whose
// gathered parameters the second run then finds in place.
void checkpoint_activations(torch::nn::Module& module);

}  // namespace tessera::parallel
