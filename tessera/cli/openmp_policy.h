// How OpenMP's threads wait for each other.
#pragma once

#include <string>

namespace tessera::cli {

// [Note: OpenMP's threads wait]
// Between two parallel regions libgomp's threads spin for milliseconds before they sleep. On a machine that
// others use too, a thread that spins holds the core that the awaited thread needs, and a step becomes up to
// a hundred times slower. libgomp reads its policy when it is loaded, before main(): so this program, when
// neither OMP_WAIT_POLICY nor GOMP_SPINCOUNT is set, sets a short spin and starts itself anew before any
// library is initialised (a few milliseconds). Ranks of --nproc inherit it.

// The policy of this process, for people.
std::string describe_wait_policy();

}  // namespace tessera::cli
