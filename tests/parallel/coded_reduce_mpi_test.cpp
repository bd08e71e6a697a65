#include <gtest/gtest.h>

#include "tests/parallel/coded_gradients.h"
#include "tests/testing/mpi_world.h"

namespace tessera::parallel {
namespace {

TEST(CodedReduceMpiTest, SumsAreThoseOfTheCodes) {
  const auto world = testing::world();
  testing::check_coded_gradients(world, 1, false);
  if (world->size() == 4) testing::check_coded_gradients(world, 2, true);
}

}  // namespace
}  // namespace tessera::parallel
