#include "tessera/train/setup/compute_type.h"

#include <gtest/gtest.h>

#include "tests/testing/mpi_world.h"

namespace tessera::train {
namespace {

using config::ComputeType;

TEST(ComputeTypeTest, AutoBecomesOneTypeOnAllRanks) {
  comm::Communicator& world = *testing::world();
  config::Recipe recipe;
  recipe.dtype = ComputeType::Auto;
  const ComputeType chosen = with_compute_type(recipe, world).dtype;
  EXPECT_TRUE(chosen == ComputeType::BFloat16 || chosen == ComputeType::Float32);
  const auto all = world.all_gather_string(std::to_string(static_cast<int>(chosen)));
  for (const std::string& of_rank : all) EXPECT_EQ(of_rank, all[0]);
}

TEST(ComputeTypeTest, AChosenTypeStays) {
  comm::Communicator& world = *testing::world();
  for (const ComputeType type : {ComputeType::Float32, ComputeType::Float64, ComputeType::BFloat16}) {
    config::Recipe recipe;
    recipe.dtype = type;
    EXPECT_EQ(with_compute_type(recipe, world).dtype, type);
  }
}

}  // namespace
}  // namespace tessera::train
