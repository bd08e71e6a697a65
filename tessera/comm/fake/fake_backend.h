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

// One communicator for each of `size` ranks, with the real results of every operation. Each must be driven
// by a thread of its own. Ranks share memory within machines of `ranks_per_node`; 0 = one machine.
std::vector<std::shared_ptr<Communicator>> make_fake_world(int64_t size, int64_t ranks_per_node = 0);

// What is below them; of 2 ranks or more.
std::vector<std::unique_ptr<detail::HostBackend>> make_fake_backends(int64_t size,
                                                                     int64_t ranks_per_node = 0);

// Runs body(communicator) on `size` threads and rethrows the first exception, by rank.
void run_fake_ranks(int64_t size, const std::function<void(const std::shared_ptr<Communicator>&)>& body,
                    int64_t ranks_per_node = 0);

}  // namespace tessera::comm
