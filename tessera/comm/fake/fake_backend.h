// Ranks that are threads of one process: for tests with no launcher, and for the thread sanitizer.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tessera/comm/communicator.h"

namespace tessera::comm {
namespace detail {
class HostBackend;
}

// Makes one communicator for each of `size` ranks, whose operations give real results. A thread of its own
// must drive each one. Every `ranks_per_node` ranks count as one machine and share memory; 0 puts all ranks
// on one machine.
std::vector<std::shared_ptr<Communicator>> make_fake_world(int64_t size, int64_t ranks_per_node = 0);

// Makes the backends of such communicators; `size` is at least 2.
std::vector<std::unique_ptr<detail::HostBackend>> make_fake_backends(int64_t size,
                                                                     int64_t ranks_per_node = 0);

// Runs body(communicator) on `size` threads and rethrows the exception of the lowest rank that threw one.
void run_fake_ranks(int64_t size, const std::function<void(const std::shared_ptr<Communicator>&)>& body,
                    int64_t ranks_per_node = 0);

}  // namespace tessera::comm
