// Compares steps with `fp8: true` with those of bfloat16, and under any layout with those of one process.
#include <algorithm>
#include <cmath>
#include <map>

#include "tessera/nn/linear.h"

#include "tests/ops/telling_leaves.h"
#include "tests/testing/extent.h"
#include "tests/testing/shared_random.h"
#include "tests/train/deep_model.h"
#include "tests/train/step_layout.h"

namespace tessera::train {
namespace {

constexpr int64_t kSteps = 20, kFewSteps = 3;
// Allowed differences, relative to the first loss: between fp8 and bfloat16, and between fp8 under a layout
// and in one process. A layout cuts operands, which therefore have other scales.
constexpr double kOfBfloat16 = 3e-2, kOfOneProcess = 2e-2;

// Makes a model with three heads of 16 and MLPs of 96: the parts that two and three ranks hold have widths
// that fp8 takes.
const DeepModel& model(const std::string& family) {
  static std::map<std::string, DeepModel> made;
  return made
      .try_emplace(family, family, 3,
                   nlohmann::json{{"hidden_size", 48},
                                  {"intermediate_size", 96},
                                  {"num_attention_heads", 3},
                                  {"num_key_value_heads", 3},
                                  {"head_dim", 16},
                                  {"initializer_range", 0.1}})
      .first->second;
}

// Returns the number of micro-batches of a step over all ranks, which one to four ranks share evenly.
int64_t num_micro_batches() { return testing::world()->size() == 4 ? 4 : 6; }

struct Course {
  std::vector<double> losses;
  int64_t in_fp8 = 0, layers = 0;  // this rank's linear layers with products in fp8, and all of them
};

Course train(LayoutCase layout, bool fp8, const std::shared_ptr<comm::Communicator>& world,
             int64_t steps = kSteps) {
  if (layout.family.empty()) layout.family = "llama3";
  layout.folder = model(layout.family).path();
  layout.dtype = config::ComputeType::BFloat16;
  layout.fp8 = fp8;
  const config::Recipe recipe = recipe_of(layout);
  const parallel::DeviceMesh mesh(world, parallel_dims(recipe, world->size()));
  TrainedModel trained = set_up_model(recipe, mesh);
  trained.model->train();
  Course course;
  for (const auto& module : trained.model->modules()) {
    const auto* const linear = dynamic_cast<const nn::Linear*>(module.get());
    if (linear == nullptr) continue;
    ++course.layers;
    course.in_fp8 += linear->product_type() == ops::ProductType::E4m3 ? 1 : 0;
  }
  const auto adamw = optim::make_adamw(optimized_tiles(*trained.sharded, 0.0, false), {});
  const int64_t count = num_micro_batches();
  const auto batches =
      micro_batches(0, count, mesh.coordinate(parallel::kAxisDp), mesh.size(parallel::kAxisDp));
  int64_t label_tokens = 0;
  for (int64_t i = 0; i < count; ++i) label_tokens += micro_batch(0, i, count).label_tokens;
  for (int64_t i = 0; i < steps; ++i)
    course.losses.push_back(run_step(trained, *adamw, mesh, {&batches, label_tokens, i, 1e-3, 1.0, 77}).loss);
  return course;
}

double distance(const std::vector<double>& got, const std::vector<double>& want) {
  double largest = 0.0;
  for (size_t i = 0; i < want.size(); ++i) largest = std::max(largest, std::abs(got[i] - want[i]) / want[0]);
  return largest;
}

TEST(StepFp8Test, LossesFollowBfloat16) {
  if (testing::world()->size() > 1) return;
  const auto single = comm::Communicator::single();
  for (const Trained kind : {Trained::All, Trained::LoraWithDropout}) {
    const LayoutCase layout{.trained = kind};
    const Course plain = train(layout, false, single), got = train(layout, true, single);
    const double found = distance(got.losses, plain.losses);
    std::printf("bfloat16 %.4f to %.4f, fp8 to %.4f, at most %.1e apart\n", plain.losses.front(),
                plain.losses.back(), got.losses.back(), found);
    EXPECT_LE(found, kOfBfloat16);
    EXPECT_GT(found, 0.0) << "nothing was cast";
    EXPECT_LT(plain.losses.back(), (kind == Trained::All ? 0.67 : 0.98) * plain.losses.front());
    // All linear layers of the three blocks use fp8; the output projection does not.
    EXPECT_EQ(got.in_fp8, 3 * 7);
    EXPECT_EQ(plain.in_fp8, 0);
    EXPECT_EQ(train(layout, true, single).losses, got.losses) << "two runs";
  }
}

// Recomputed activations are cast again, to the same codes.
TEST(StepFp8Test, RecomputationChangesNoBit) {
  if (testing::world()->size() > 1) return;
  const auto single = comm::Communicator::single();
  const Course want = train({}, true, single);
  for (const auto kind : {config::Checkpointing::Mlp, config::Checkpointing::Block})
    EXPECT_EQ(train({.checkpointing = kind}, true, single).losses, want.losses);
}

void expect_to_follow(const LayoutCase& layout, const Course& want) {
  const auto world = testing::world();
  const auto text = [](const char* name, auto value) {
    return std::string(name) + std::to_string(static_cast<int>(value));
  };
  const std::string name = (layout.family.empty() ? "llama3" : layout.family) +
                           text(" stage ", layout.stage) + text(" dp_replicate ", layout.dp_replicate) +
                           text(" tp ", layout.tp) + text(" cp ", layout.cp) + text(" pp ", layout.pp) +
                           text(" ep ", layout.ep) + text(" hpz ", layout.hpz);
  const Course got = train(layout, true, world, std::ssize(want.losses));
  const double found = distance(got.losses, want.losses);
  if (world->rank() == 0) std::printf("%s: at most %.1e apart\n", name.c_str(), found);
  EXPECT_LE(found, kOfOneProcess) << name;
  EXPECT_GT(got.in_fp8, 0) << name;
}

TEST(StepFp8Test, AnyLayoutFollowsOneProcess) {
  using config::ZeroStage;
  const int64_t ranks = testing::world()->size();
  if (ranks == 1 || ranks == 4) return;
  testing::Random random = testing::shared_random();
  for (const Trained kind : {Trained::All, Trained::LoraWithDropout}) {
    const Course want = train({.trained = kind}, true, comm::Communicator::single());
    const std::vector<LayoutCase> layouts = {{.stage = ZeroStage::Zero3},
                                             {.stage = ZeroStage::Zero1},
                                             {.stage = ZeroStage::Ddp},
                                             {.tp = ranks},
                                             {.tp = ranks, .async_tp = true},
                                             {.cp = ranks},
                                             {.pp = ranks, .schedule = PipelineKind::ZeroBubble}};
    for (LayoutCase layout : testing::some_of(layouts, 2, random)) {
      layout.trained = kind;
      expect_to_follow(layout, want);
    }
  }
}

// The leaves give the scales of their results, as a device's kernels do (telling_leaves.h). Each scale is
// that of the values that are cast, so no bit changes, and fewer tensors are searched for their absmax.
TEST(StepFp8Test, ScalesThatAreSaidChangeNoBit) {
  const auto world = testing::world();
  const int64_t ranks = world->size();
  if (ranks == 4) return;
  testing::Random random = testing::shared_random();
  for (const Trained kind : {Trained::All, Trained::LoraWithDropout}) {
    std::vector<LayoutCase> layouts = {
        {}, {.checkpointing = config::Checkpointing::Mlp}, {.checkpointing = config::Checkpointing::Block}};
    if (ranks > 1) {
      layouts.push_back({.tp = ranks});
      layouts.push_back({.tp = ranks, .async_tp = true});
      layouts.push_back({.tp = ranks, .checkpointing = config::Checkpointing::Block});
      layouts.push_back({.cp = ranks});
      layouts.push_back({.pp = ranks, .schedule = PipelineKind::ZeroBubble});
    }
    for (LayoutCase layout : testing::some_of(layouts, 2, random)) {
      layout.trained = kind;
      const auto run = [&](const ops::Leaves& table) {
        const ops::LeavesScope scope(&table);
        ops::casts = {};
        const std::vector<double> losses = train(layout, true, world, kFewSteps).losses;
        return std::pair(losses, ops::casts);
      };
      const auto [want, counted] = run(ops::counting_leaves());
      const auto [got, said] = run(ops::telling_leaves());
      EXPECT_EQ(got, want);
      EXPECT_EQ(said.all, counted.all);
      EXPECT_LT(said.absmax, counted.absmax);
      if (world->rank() == 0)
        std::printf("%d casts look %d times, %d where scales are said\n", said.all, counted.absmax,
                    said.absmax);
    }
  }
}

TEST(StepFp8Test, ProductsOfAxesFollowOneProcess) {
  if (testing::world()->size() != 4) return;
  const Course want = train({}, true, comm::Communicator::single(), kFewSteps);
  const std::vector<LayoutCase> layouts = {{.stage = config::ZeroStage::Zero1, .dp_replicate = 2},
                                           {.hpz = 2},
                                           {.dp_replicate = 2, .tp = 2, .async_tp = true},
                                           {.tp = 2, .cp = 2},
                                           {.stage = config::ZeroStage::Zero2, .tp = 2, .pp = 2},
                                           {.cp = 2, .pp = 2, .schedule = PipelineKind::ZeroBubble}};
  testing::Random random = testing::shared_random();
  for (const LayoutCase& layout : testing::some_of(layouts, 2, random)) expect_to_follow(layout, want);
}

// An expert gets the tokens of all ranks that send it some, and its absmax is over all of them.
TEST(StepFp8Test, ExpertsOfRanksFollowOneProcess) {
  const int64_t ranks = testing::world()->size();
  const auto single = comm::Communicator::single();
  const LayoutCase alone{.family = "mixtral"};
  const Course want = train(alone, true, single, kFewSteps);
  // Each of three blocks has four layers of attention and three of each of five experts in fp8, but not the
  // router.
  EXPECT_EQ(want.in_fp8, 3 * (4 + 5 * 3));
  EXPECT_EQ(want.layers, want.in_fp8 + 3 + 1) << "and not the output projection";
  if (ranks == 1) {
    const Course plain = train(alone, false, single, kFewSteps);
    EXPECT_LE(distance(want.losses, plain.losses), kOfBfloat16);
    EXPECT_GT(distance(want.losses, plain.losses), 0.0);
  }
  std::vector<LayoutCase> layouts;
  if (ranks == 2 || ranks == 3) layouts = {{.ep = ranks}, {.stage = config::ZeroStage::Zero1, .ep = ranks}};
  if (ranks == 4) layouts = {{.dp_replicate = 2, .ep = 2}, {.tp = 2, .ep = 2}};
  for (LayoutCase& layout : layouts) {
    layout.family = alone.family;
    expect_to_follow(layout, want);
  }
}

}  // namespace
}  // namespace tessera::train
