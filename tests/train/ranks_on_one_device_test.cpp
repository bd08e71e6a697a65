// Runs all ranks on one device whose streams run late. They share one thread for their backwards, as on a
// GPU.
#include "tests/train/ranks_on_one_device.h"

#include "tests/comm/nccl/nccl_ranks.h"
#include "tests/testing/extent.h"

namespace tessera::train {
namespace {

TEST(RanksOnOneDeviceTest, EqualOneProcess) {
  testing::fake_device::configure({.seed = 1, .longest_delay_us = 30});
  testing::Random random;
  expect_ranks_equal_one_process(
      [](int64_t ranks, const testing::RankBody& body) {
        testing::run_nccl_ranks(ranks, body, {.shares_device = true});
      },
      testing::fake_device::device(0),
      [&](int64_t ranks) { return testing::some_of(layouts_of(ranks), 1, random); });
  testing::fake_device::synchronize();
  EXPECT_STREQ(testing::stub().faults(), "");
  EXPECT_EQ(testing::fake_device::fault(), "");
}

}  // namespace
}  // namespace tessera::train
