// Switches linear layers to products in fp8.
#pragma once

#include <cstdint>

#include <torch/nn/module.h>

namespace tessera::nn {

// Makes the linear layers of `root` multiply in e4m3 (ops/e4m3.h) from now on, forward and backward. Their
// adapters do not, nor do the routers of experts, whose choices depend on small differences. Returns the
// number of layers that were switched.
int64_t multiply_in_e4m3(torch::nn::Module& root);

}  // namespace tessera::nn
