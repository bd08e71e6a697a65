#include <gtest/gtest.h>

#include "tests/parallel/interruption.h"
#include "tests/parallel/parity.h"
#include "tests/testing/mpi_world.h"

namespace tessera::parallel {
namespace {

TEST(FullyShardMpiTest, EveryPolicyEqualsOneProcess) {
  const auto world = testing::world();
  for (const auto& parity : testing::parity_cases(world->size())) testing::check_parity(world, parity);
}

TEST(FullyShardMpiTest, AForwardOrBackwardThatThrowsLeavesNothingBehind) {
  const auto world = testing::world();
  for (const auto& parity : testing::interruption_cases(world->size())) {
    testing::check_interruption(world, parity, 1);
  }
}

}  // namespace
}  // namespace tessera::parallel
