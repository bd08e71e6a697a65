// Random initial weights that do not depend on how a parameter is split.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "tessera/models/common/causal_lm.h"

namespace tessera::models {

struct InitialOptions {
  uint64_t seed = 0;
  double standard_deviation = 0.02;
};

// Fills rows [first_row, ...) of the parameter `name`: `tile` is a contiguous CPU tensor of a floating type
// holding whole rows along dim 0. Biases become 0, other one-dimensional parameters (scales of norms) 1, the
// rest normal with mean 0; parameters of adapters as peft::fill_initial_lora. Every element is a function of
// (seed, name, global element index).
void fill_initial(at::Tensor tile, const std::string& name, int64_t first_row, const InitialOptions& options);

// Single process: gives every parameter of the model random initial values, adapters included, with the
// standard deviation of its config.
void initialise_weights(CausalLM& model, uint64_t seed);

// Single process: the same for the parameters of adapters alone, the rest being loaded.
void initialise_adapters(CausalLM& model, uint64_t seed);

}  // namespace tessera::models
