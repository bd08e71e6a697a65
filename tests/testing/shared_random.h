// Random numbers that all ranks of a multi-rank test draw alike.
#pragma once

#include "tests/testing/mpi_world.h"
#include "tests/testing/random.h"

namespace tessera::testing {

// Returns a generator whose seed is the first rank's, which prints it. Collective.
inline Random shared_random() {
  const auto world = testing::world();
  const at::Tensor seed = at::tensor({int64_t{0}}, at::kLong);
  if (world->rank() == 0) {
    seed.fill_(static_cast<int64_t>(Random::new_seed()));
    std::cout << "TESSERA_TEST_SEED=" << seed.item<int64_t>() << std::endl;
  }
  world->broadcast(seed, 0);
  return Random(static_cast<unsigned>(seed.item<int64_t>()));
}

}  // namespace tessera::testing
