// Tests recipes that keep parameters and optimizer states on the host, under products of axes, on devices
// whose streams run late: losses, gradients and weights are those of a run that keeps everything on the
// device, to the bit.
#include "tests/comm/nccl/nccl_ranks.h"
#include "tests/testing/extent.h"
#include "tests/train/deep_model.h"
#include "tests/train/step_layout.h"

namespace tessera::train {
namespace {

namespace fake = testing::fake_device;
using config::ZeroStage;

// Returns the outcome of each rank.
std::vector<Outcome> on_devices(const LayoutCase& layout, int64_t ranks) {
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  testing::run_nccl_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& world) {
    Outcome& own = outcomes[static_cast<size_t>(world->rank())];
    own = run(layout, world, 2 * ranks);
    for (auto* const all : {&own.gradients, &own.values}) {
      for (auto& [name, tensor] : *all) tensor = tensor.to(kHost);
    }
  });
  return outcomes;
}

// Names the first difference; "" if there is none.
std::string difference(const Outcome& want, const Outcome& got) {
  if (got.losses != want.losses) return "losses";
  if (got.norms != want.norms) return "norms";
  if (got.routers != want.routers) return "values of the routers";
  const auto first_of = [](const auto& a, const auto& b) -> std::string {
    if (a.size() != b.size()) return "the number of tensors";
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i].first != b[i].first || !at::equal(a[i].second, b[i].second)) return a[i].first;
    }
    return "";
  };
  if (const std::string name = first_of(want.gradients, got.gradients); !name.empty())
    return "gradient of " + name;
  return first_of(want.values, got.values);
}

void expect_same_bits(LayoutCase layout, int64_t ranks) {
  SCOPED_TRACE(::testing::Message() << layout.family << " on " << ranks << " ranks, zero_stage "
                                    << static_cast<int>(layout.stage) << ", fp8 " << layout.fp8);
  testing::use_delays(1);
  const std::vector<Outcome> want = on_devices(layout, ranks);
  for (const double loss : want[0].losses) EXPECT_TRUE(std::isfinite(loss) && loss > 0.0);
  layout.offloads = true;
  testing::use_delays(2);
  const std::vector<Outcome> got = on_devices(layout, ranks);
  for (size_t rank = 0; rank < got.size(); ++rank)
    EXPECT_EQ(difference(want[rank], got[rank]), "") << "rank " << rank;
  fake::synchronize();
  EXPECT_STREQ(testing::stub().faults(), "");
  EXPECT_EQ(fake::fault(), "");
}

TEST(StepOffloadProductsTest, TensorParallel) {
  LayoutCase layout{.family = "llama2", .tp = 2, .dtype = config::ComputeType::Float32};
  expect_same_bits(layout, 2);
  layout.checkpointing = config::Checkpointing::Block;
  layout.dtype = config::ComputeType::BFloat16;
  expect_same_bits(layout, 4);
}

TEST(StepOffloadProductsTest, TensorParallelOfThreeWithAdapters) {
  expect_same_bits(
      {.family = "gpt2", .tp = 3, .trained = Trained::LoraWithDropout, .dtype = config::ComputeType::Float32},
      3);
}

TEST(StepOffloadProductsTest, HybridShards) {
  for (const auto stage : {ZeroStage::Zero3, ZeroStage::Zero1, ZeroStage::Ddp})
    expect_same_bits({.family = "llama2",
                      .stage = stage,
                      .dp_replicate = stage == ZeroStage::Ddp ? 1 : 2,
                      .dtype = config::ComputeType::BFloat16},
                     4);
  expect_same_bits({.family = "llama2", .hpz = 2, .dtype = config::ComputeType::Float32}, 4);
}

TEST(StepOffloadProductsTest, Experts) {
  testing::Random random;
  for (const int64_t ranks : testing::some_of<int64_t>({2, 3, 4}, 1, random)) {
    LayoutCase layout{.family = "mixtral", .ep = ranks == 4 ? 2 : ranks};
    layout.dtype = ranks == 3 ? config::ComputeType::BFloat16 : config::ComputeType::Float32;
    layout.stage = ranks == 2 ? ZeroStage::Zero2 : ZeroStage::Zero3;
    expect_same_bits(layout, ranks);
  }
}

TEST(StepOffloadProductsTest, StagesOfTensorParallelRanks) {
  expect_same_bits({.family = "llama2",
                    .stage = ZeroStage::Zero2,
                    .tp = 2,
                    .pp = 2,
                    .schedule = PipelineKind::ZeroBubble,
                    .dtype = config::ComputeType::BFloat16},
                   4);
}

TEST(StepOffloadProductsTest, InFp8) {
  const DeepModel model("llama3", 2, {{"hidden_size", 32}, {"intermediate_size", 64}, {"head_dim", 16}});
  LayoutCase layout{.family = "llama3", .folder = model.path(), .dtype = config::ComputeType::BFloat16};
  layout.fp8 = true;
  expect_same_bits(layout, 2);
  layout.tp = 2;
  layout.stage = ZeroStage::Zero2;
  expect_same_bits(layout, 4);
}

}  // namespace
}  // namespace tessera::train
