// A group of one rank.
#pragma once

#include "tessera/comm/tensor_backend.h"

namespace tessera::comm::detail {

// Every operation is a copy of this rank's own data, and done when it returns. Takes tensors on any device;
// `device` is where the rank computes.
std::unique_ptr<TensorBackend> make_single_backend(at::Device device);

}  // namespace tessera::comm::detail
