// Runs all ranks as threads on one GPU, in a process whose streams can all run at once.
#include "tests/comm/nccl/cuda_ranks.h"
#include "tests/testing/run_program.h"
#include "tests/train/ranks_on_one_device.h"

namespace tessera::train {
namespace {

// The next test runs this one, in a process of its own.
TEST(RanksOnOneGpu, DISABLED_TheProcess) {
  expect_ranks_equal_one_process(&testing::run_cuda_ranks, testing::cuda_device());
  EXPECT_EQ(testing::cuda_fault(), "");
  EXPECT_STREQ(testing::stub_table(testing::own_stub_path()).faults(), "");
}

TEST(RanksOnOneGpu, EqualOneProcessOfTheHost) {
  TESSERA_NEEDS_CUDA();
  testing::RunOptions options;
  options.environment = {{"CUDA_DEVICE_MAX_CONNECTIONS", "32"}, {"CUDA_MODULE_LOADING", "EAGER"}};
  const testing::ProgramResult result =
      testing::run_command({"/proc/self/exe", "--gtest_also_run_disabled_tests",
                            "--gtest_filter=RanksOnOneGpu.DISABLED_TheProcess"},
                           options);
  EXPECT_EQ(result.exit_code, 0) << result.told();
}

}  // namespace
}  // namespace tessera::train
