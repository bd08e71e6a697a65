// Activation checkpointing of whole modules: recompute activations instead of keeping them.
#pragma once

#include <memory>

#include <torch/nn/module.h>

namespace tessera::parallel {

// Makes the module, when run through nn::call(), keep only its input and run its forward again in the
// backward pass (Chen et al., "Training deep nets with sublinear memory cost", 2016). The forward must be a
// pure function of its input, its parameters and nn::RandomScope. Apply it before fully_shard(), whose
// gathered parameters the second run then finds in place.
void checkpoint_activations(torch::nn::Module& module);

}  // namespace tessera::parallel
