// The cores that a process may use, and how the ranks of a machine share them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// Numbers of logical cores as the system counts them, ascending.
using CoreSet = std::vector<int>;

// The cores that the calling thread may run on; empty when the system does not tell.
CoreSet usable_core_set();

// Writes the set as "0-3,8".
std::string to_string(const CoreSet& cores);
// Reads what to_string() writes; throws Error(Internal) for other text.
CoreSet parse_core_set(const std::string& text);

// Sorts cores so that the hardware threads of a core are next to each other, and the cores of a socket:
// neighbours in this order share most.
std::vector<int> by_topology(const CoreSet& cores);

// The share that a rank has of its machine.
struct CoreShare {
  // The rank's own cores. If empty, the rank stays on those that it was given: its launcher bound it, its
  // cores overlap those of a rank with another set, it is alone, or there are more ranks than cores.
  CoreSet cores;
  int64_t threads = 1;  // number of threads that may compute
};

// Gives the share of rank `index` on a machine where `sets[i]` are the cores that rank i may use. Ranks with
// one and the same set divide it; a rank with a set of its own was bound by its launcher. `order` holds the
// cores of the set in the order in which they are dealt.
CoreShare share_of_cores(const std::vector<CoreSet>& sets, size_t index, const std::vector<int>& order);

// Ranks are bound only if fewer threads than this, on average, run on the machine besides them: a bound
// thread cannot leave a busy core.
inline constexpr double kCrowd = 0.5;

// Moves all threads of this process to these cores; false when the system refuses.
bool bind_process(const CoreSet& cores);

}  // namespace tessera
