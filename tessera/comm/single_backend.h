// A group of one rank.
#pragma once

#include "tessera/comm/tensor_backend.h"

namespace tessera::comm::detail {

// Makes the backend of a group of one rank, in which every collective copies this rank's own data and is done
// when it returns. It takes tensors on any device; `device` is where the rank computes.
std::unique_ptr<TensorBackend> make_single_backend(at::Device device);

}  // namespace tessera::comm::detail
