// Runs the comparison of step_offload.h along the axes of context and pipeline parallelism.
#include "tests/train/step_offload.h"

namespace tessera::train::offload {
namespace {

TEST(StepOffloadAxesTest, ContextParallelInBf16) {
  expect_same_bits(
      {.along = Along::Context, .checkpointing = config::Checkpointing::Block, .compute = at::kBFloat16},
      {2, 3});
}
TEST(StepOffloadAxesTest, ContextParallel) { expect_same_bits({.along = Along::Context}, {2}); }
TEST(StepOffloadAxesTest, Pipeline) {
  expect_same_bits({.family = "gpt2", .along = Along::Pipeline}, {2, 3});
}
TEST(StepOffloadAxesTest, PipelineInBf16) {
  expect_same_bits({.family = "gpt2",
                    .along = Along::Pipeline,
                    .checkpointing = config::Checkpointing::Block,
                    .compute = at::kBFloat16},
                   {2, 3});
}
TEST(StepOffloadAxesTest, PipelineOfShards) {
  expect_same_bits({.along = Along::PipelineAndShard, .stage = config::ZeroStage::Zero2}, {4, 6});
}

}  // namespace
}  // namespace tessera::train::offload
