#include "tests/train/step_offload.h"

namespace tessera::train::offload {
namespace {

TEST(StepOffloadTest, EverythingKept) { expect_same_bits({}); }
TEST(StepOffloadTest, InputsOfBlocks) { expect_same_bits({.checkpointing = config::Checkpointing::Block}); }
TEST(StepOffloadTest, InputsOfEveryOtherBlock) {
  expect_same_bits(
      {.checkpointing = config::Checkpointing::Block, .every = 2, .stage = config::ZeroStage::Zero2});
}
TEST(StepOffloadTest, AllButTheInputsOfNonlinearities) {
  expect_same_bits({.checkpointing = config::Checkpointing::Mlp, .stage = config::ZeroStage::Zero1});
}
TEST(StepOffloadTest, LayerNorms) { expect_same_bits({.family = "gpt2"}); }
TEST(StepOffloadTest, MasterWeightsOfBf16) {
  expect_same_bits({.checkpointing = config::Checkpointing::Block, .compute = at::kBFloat16});
}
TEST(StepOffloadTest, StatesInBf16) {
  expect_same_bits({.compute = at::kBFloat16, .has_bf16_states = true}, {1});
}
TEST(StepOffloadTest, WithoutStates) { expect_same_bits({.optimizer = config::OptimizerKind::Sgd}); }

}  // namespace
}  // namespace tessera::train::offload
