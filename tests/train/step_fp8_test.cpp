// Steps with fp8: true beside those of bfloat16, and under any layout beside one process.
#include <algorithm>
#include <cmath>

#include "tessera/nn/linear.h"

#include "tests/train/deep_model.h"
#include "tests/train/step_layout.h"

namespace tessera::train {
namespace {

constexpr int64_t kSteps = 20, kMicroBatches = 6;
// Of the first loss: fp8 beside bfloat16, and fp8 under a layout, which cuts operands and so has other
// scales, beside one process.
constexpr double kOfBfloat16 = 3e-2, kOfOneProcess = 2e-2;

// Three heads of 16 and an MLP of 96: what two and three ranks hold of them has widths that fp8 takes.
const DeepModel& model() {
  static const DeepModel made("llama3", 3,
                              {{"hidden_size", 48},
                               {"intermediate_size", 96},
                               {"num_attention_heads", 3},
                               {"num_key_value_heads", 3},
                               {"head_dim", 16},
                               {"initializer_range", 0.1}});
  return made;
}

struct Course {
  std::vector<double> losses;
  int64_t in_fp8 = 0, layers = 0;  // linear layers of this rank
};

Course train(LayoutCase layout, bool fp8, const std::shared_ptr<comm::Communicator>& world) {
  layout.folder = model().path();
  layout.family = "llama3";
  layout.dtype = config::ComputeType::BFloat16;
  config::Recipe recipe = recipe_of(layout);
  recipe.fp8 = fp8;
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
  const auto batches =
      micro_batches(0, kMicroBatches, mesh.coordinate(parallel::kAxisDp), mesh.size(parallel::kAxisDp));
  int64_t label_tokens = 0;
  for (int64_t i = 0; i < kMicroBatches; ++i) label_tokens += micro_batch(0, i, kMicroBatches).label_tokens;
  for (int64_t i = 0; i < kSteps; ++i)
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
    // Those of the blocks; the output projection, if there is one, is none of them.
    EXPECT_EQ(got.in_fp8, 3 * 7);
    EXPECT_EQ(plain.in_fp8, 0);
    EXPECT_EQ(train(layout, true, single).losses, got.losses) << "two runs";
  }
}

// What is recomputed is cast again, to the same codes.
TEST(StepFp8Test, RecomputationChangesNoBit) {
  if (testing::world()->size() > 1) return;
  const auto single = comm::Communicator::single();
  const Course want = train({}, true, single);
  for (const auto kind : {config::Checkpointing::Mlp, config::Checkpointing::Block})
    EXPECT_EQ(train({.checkpointing = kind}, true, single).losses, want.losses);
}

TEST(StepFp8Test, AnyLayoutFollowsOneProcess) {
  const auto world = testing::world();
  const int64_t ranks = world->size();
  if (ranks == 1) return;
  const auto single = comm::Communicator::single();
  for (const Trained kind : {Trained::All, Trained::LoraWithDropout}) {
    const Course want = train({.trained = kind}, true, single);
    std::vector<LayoutCase> layouts = {{.stage = config::ZeroStage::Zero3},
                                       {.stage = config::ZeroStage::Ddp},
                                       {.tp = ranks},
                                       {.tp = ranks, .async_tp = true},
                                       {.cp = ranks},
                                       {.pp = ranks, .schedule = PipelineKind::ZeroBubble}};
    for (LayoutCase& layout : layouts) {
      layout.trained = kind;
      const Course got = train(layout, true, world);
      const double found = distance(got.losses, want.losses);
      if (world->rank() == 0) {
        std::printf("tp %d cp %d pp %d stage %d: at most %.1e apart\n", static_cast<int>(layout.tp),
                    static_cast<int>(layout.cp), static_cast<int>(layout.pp), static_cast<int>(layout.stage),
                    found);
      }
      EXPECT_LE(found, kOfOneProcess) << layout.tp << ' ' << layout.cp << ' ' << layout.pp;
      EXPECT_GT(got.in_fp8, 0);
    }
  }
}

}  // namespace
}  // namespace tessera::train
