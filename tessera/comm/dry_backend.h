// A rank of a group whose other ranks do not exist, for runs on the meta device.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/comm/communicator.h"

namespace tessera::comm {

// Makes a communicator of rank `rank` of `size` on the meta device, for one process that follows what that
// rank would do. Operations on meta tensors move nothing, and those on tensors of the host behave as if every
// rank gave what this one gives. split() needs the size of the part, and takes the key for the rank in it. If
// the ranks share memory, as those of one machine do, shared_bytes() makes meta tensors.
std::shared_ptr<Communicator> make_dry_world(int64_t rank, int64_t size, bool shares_memory);

}  // namespace tessera::comm
