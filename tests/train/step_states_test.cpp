// Tests that optimizer states in bfloat16, which are rounded stochastically, equal those of one process to
// the bit under every layout.
#include <utility>

#include "tessera/ops/leaf.h"

#include "tests/testing/extent.h"
#include "tests/testing/shared_random.h"
#include "tests/train/parity_families.h"
#include "tests/train/step_layout.h"

namespace tessera::train {
namespace {

// Returns every way to cut parameters that the number of ranks allows, alone and in pairs.
std::vector<LayoutCase> layouts_of(const std::string& family, int64_t ranks) {
  using config::ZeroStage;
  std::vector<LayoutCase> layouts = {{.family = family, .stage = ZeroStage::Zero3}};
  if (ranks == 1) return layouts;
  layouts.push_back({.family = family, .stage = ZeroStage::Zero1});
  layouts.push_back({.family = family, .stage = ZeroStage::Ddp});
  layouts.push_back({.family = family, .cp = ranks});
  // A stage must have at least one layer.
  if (ranks <= (family == "llama2" ? 2 : 3)) layouts.push_back({.family = family, .pp = ranks});
  if (ranks % 2 != 0) return layouts;
  // Tensor parallelism cuts columns of matrices, and shards then cut the rows of these parts anywhere.
  layouts.push_back({.family = family, .stage = ZeroStage::Zero2, .tp = 2});
  if (ranks != 4) return layouts;
  layouts.push_back({.family = family, .dp_replicate = 2, .tp = 2});
  layouts.push_back({.family = family, .tp = 2, .pp = 2});
  layouts.push_back({.family = family, .tp = 2, .cp = 2});
  layouts.push_back({.family = family, .hpz = 2});
  return layouts;
}

class StepStatesOfFamilyTest : public ::testing::TestWithParam<ParityFamily> {};

TEST_P(StepStatesOfFamilyTest, EqualOneProcess) {
  testing::Random random = testing::shared_random();
  auto layouts = testing::some_of(layouts_of(GetParam().name, testing::world()->size()), 3, random);
  for (LayoutCase& layout : layouts) layout.has_bf16_states = true;
  expect_same_as_one_process(layouts);
}
INSTANTIATE_TEST_SUITE_P(All, StepStatesOfFamilyTest, ::testing::ValuesIn(families_in(Parity::Bf16States)),
                         name_of_family);

TEST(StepStatesTest, Adapters) {
  for (const int64_t tp : {1, 2}) {
    if (testing::world()->size() % tp != 0) continue;
    expect_same_as_one_process(
        {.family = "llama3", .tp = tp, .trained = Trained::LoraWithDropout, .has_bf16_states = true});
  }
}

TEST(StepStatesTest, Experts) {
  const int64_t ranks = testing::world()->size();
  for (const int64_t ep : {int64_t{1}, ranks}) {
    if (ep > 1 && ranks % 2 != 0) continue;
    expect_same_as_one_process({.family = "mixtral", .ep = ep, .has_bf16_states = true});
  }
}

// Each optimizer updates tiles as it updates whole parameters, also those of experts on other ranks. Values
// are compared after updates, so its norms and sums are those of the whole parameters.
TEST(StepStatesTest, OptimizersOfTheTable) {
  const int64_t ranks = testing::world()->size();
  testing::Random random = testing::shared_random();
  std::vector<LayoutCase> cases;
  for (const OptimizerFacts& facts : optimizer_table()) {
    if (facts.kind == OptimizerKind::AdamW) continue;
    std::vector<LayoutCase> layouts = layouts_of("llama3", ranks);
    if (ranks % 2 == 0) layouts.push_back({.family = "mixtral", .ep = ranks});
    for (LayoutCase layout : testing::some_of(layouts, 1, random)) {
      layout.optimizer = facts.kind;
      cases.push_back(layout);
    }
  }
  expect_same_as_one_process(cases);
}

// Updates within the backward give the norm and the values of one update behind it, for an element-wise rule,
// rules that measure whole parameters, and one that gathers matrices.
TEST(StepStatesTest, UpdatesInTheBackward) {
  const int64_t ranks = testing::world()->size();
  testing::Random random = testing::shared_random();
  std::vector<LayoutCase> layouts;
  for (const char* family : {"llama3", "qwen3"}) {  // one has a tied head
    for (const LayoutCase& layout : layouts_of(family, ranks)) {
      if (layout.pp == 1) layouts.push_back(layout);
    }
  }
  for (const Trained trained : {Trained::SomeFrozen, Trained::LoraWithDropout, Trained::QDora})
    layouts.push_back({.family = "llama3", .trained = trained});
  if (ranks % 2 == 0) layouts.push_back({.family = "mixtral", .ep = ranks});
  std::vector<LayoutCase> cases;
  for (const OptimizerKind kind : {OptimizerKind::AdamW, OptimizerKind::AdamW8bit, OptimizerKind::Adafactor,
                                   OptimizerKind::Muon, OptimizerKind::GaLore, OptimizerKind::Sgd}) {
    for (LayoutCase layout : testing::some_of(layouts, 1, random)) {
      layout.optimizer = kind;
      layout.max_grad_norm = 0.0;
      layout.updates_in_backward = true;
      cases.push_back(layout);
    }
  }
  expect_same_as_one_process(cases);
}

TEST(StepStatesTest, PlainOpsRoundAsKernelsDo) {
  const int64_t count = 3 * testing::world()->size();
  const LayoutCase layout{.family = "llama3", .has_bf16_states = true};
  const Outcome want = run(layout, testing::world(), count);
  const ops::PlainOps plain;
  expect_equal(run(layout, testing::world(), count), want, 1e-10);
}

}  // namespace
}  // namespace tessera::train
