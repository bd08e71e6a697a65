// Cores: which a process may use, and how the ranks of a machine share them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// Numbers of logical cores as the system counts them, ascending.
using CoreSet = std::vector<int>;

// The cores that the calling thread may run on; empty when the system does not tell.
CoreSet usable_core_set();

// "0-3,8".
std::string to_string(const CoreSet& cores);
// The inverse; throws Error(Internal) for other text.
CoreSet parse_core_set(const std::string& text);

// The cores with the hardware threads of a core next to each other, and the cores of a socket: neighbours in
// this order share most.
std::vector<int> by_topology(const CoreSet& cores);

// What a rank takes of its machine.
struct CoreShare {
  // Its own cores. Empty: it stays on those that it was given, because its launcher bound it, it is alone, or
  // there are more ranks than cores.
  CoreSet cores;
  int64_t threads = 1;  // how many may compute
};

// The share of rank `index` on a machine where `sets[i]` are the cores that rank i may use. Ranks with one
// and the same set divide it; a rank with a set of its own was bound by its launcher. `order` holds the cores
// of the set in the order in which they are dealt.
CoreShare share_of_cores(const std::vector<CoreSet>& sets, size_t index, const std::vector<int>& order);

// Ranks are bound where fewer threads than this run on the machine besides them: a bound thread cannot leave
// a busy core.
inline constexpr double kCrowd = 0.5;

// Moves all threads of this process to these cores; false when the system refuses.
bool bind_process(const CoreSet& cores);

}  // namespace tessera
