// Random numbers that all ranks of a multi-rank test draw alike.
#pragma once

#include <string>

#include "tests/testing/mpi_world.h"
#include "tests/testing/random.h"

namespace tessera::testing {

// Returns a generator whose seed is the first rank's, which prints it. Collective.
inline Random shared_random() {
  const auto world = testing::world();
  const auto seed =
      static_cast<unsigned>(std::stoul(world->all_gather_string(std::to_string(Random::new_seed())).front()));
  return Random(world->rank() == 0 ? Random::told(seed) : seed);
}

}  // namespace tessera::testing
