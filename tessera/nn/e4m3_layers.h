// Layers whose products are made in fp8.
#pragma once

#include <cstdint>

#include <torch/nn/module.h>

namespace tessera::nn {

// From now on the linear layers of `root` multiply in e4m3 (ops/e4m3.h), forward and backward; their adapters
// and the routers of experts, whose choices hang on small differences, do not. Returns how many layers do.
int64_t multiply_in_e4m3(torch::nn::Module& root);

}  // namespace tessera::nn
