// Tests that the noise of the gradient is measured the same way under any layout, and changes no other
// number.
#include "tessera/train/step/gradient_noise.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/train/setup/recipe_values.h"

#include "tests/testing/mpi_world.h"
#include "tests/train/training_testing.h"

namespace tessera::train {
namespace {

constexpr int64_t kMicroBatches = 12;  // of a step, over all ranks

struct Cut {
  const char* what;
  int64_t config::Recipe::*axis;  // the axis along which all ranks lie; null for dp_shard
  config::ZeroStage stage;
};

class GradientNoiseTest : public ::testing::TestWithParam<Cut> {
 protected:
  void SetUp() override {
    if (folder_.is_owner()) testing::write_tiny_model(folder_ / "model", {});
    world_->barrier();
  }
  config::Recipe recipe_of(int64_t micro_batches, int64_t noise_steps) const {
    config::Recipe recipe;
    recipe.base_model = folder_ / "model";
    recipe.dtype = config::ComputeType::Float64;
    recipe.learning_rate = 0.03;
    recipe.max_steps = 4;
    recipe.micro_batch_size = 1;
    recipe.sequence_len = 24;
    recipe.gradient_accumulation_steps = micro_batches;
    recipe.gradient_noise_steps = noise_steps;
    return recipe;
  }
  static Training training_of(const config::Recipe& recipe, const parallel::DeviceMesh& mesh) {
    auto loader = std::make_unique<data::Loader>(
        testing::random_rows(4 * kMicroBatches, testing::TinyModel().vocab),
        data::train_loader_options(recipe, mesh.coordinate(parallel::kAxisDp), mesh.size(parallel::kAxisDp)));
    return {recipe, mesh, std::move(loader), set_up_model(recipe, mesh)};
  }

  std::shared_ptr<comm::Communicator> world_ = testing::world();
  testing::SharedFolder folder_{world_};
};

TEST_P(GradientNoiseTest, IsThatOfOneProcess) {
  const Cut& cut = GetParam();
  const bool is_along_axis = cut.axis != nullptr;
  // The model has too few heads and layers for more ranks along tp and pp.
  const bool is_short = cut.axis == &config::Recipe::tensor_parallel_size ||
                        cut.axis == &config::Recipe::pipeline_parallel_size;
  if (is_short && world_->size() > 2) return;
  const bool reads_apart = !is_along_axis || cut.axis == &config::Recipe::dp_replicate_size;
  config::Recipe recipe = recipe_of(reads_apart ? kMicroBatches / world_->size() : kMicroBatches, 2);
  recipe.zero_stage = cut.stage;
  if (is_along_axis) recipe.*cut.axis = world_->size();
  const parallel::DeviceMesh mesh(world_, parallel_dims(recipe, world_->size()));
  const config::Recipe alone = recipe_of(kMicroBatches, 2);
  const parallel::DeviceMesh one(comm::Communicator::single(), parallel_dims(alone, 1));
  Training many = training_of(recipe, mesh), single = training_of(alone, one),
           plain = training_of(recipe_of(kMicroBatches, 0), one);
  for (int step = 1; step <= 4; ++step) {
    const StepMetrics told = many.step(), want = single.step(), unmeasured = plain.step();
    EXPECT_NEAR(told.loss, unmeasured.loss, 1e-10);
    EXPECT_NEAR(told.grad_norm, unmeasured.grad_norm, 1e-10 * unmeasured.grad_norm);
    EXPECT_EQ(unmeasured.gradient_noise.steps, 0);
    ASSERT_EQ(told.gradient_noise.steps, step % 2 == 0 ? 1 : 0);
    EXPECT_NEAR(told.gradient_noise.signal, want.gradient_noise.signal,
                1e-10 * std::abs(want.gradient_noise.signal));
    EXPECT_NEAR(told.gradient_noise.noise, want.gradient_noise.noise,
                1e-10 * std::abs(want.gradient_noise.noise));
  }
}

// The first half of a step is a step of half as many micro-batches.
TEST_P(GradientNoiseTest, IsMadeOfTheGradientsOfHalfAStepAndAll) {
  const config::Recipe recipe = recipe_of(kMicroBatches, 1), half_recipe = recipe_of(kMicroBatches / 2, 0);
  const parallel::DeviceMesh one(comm::Communicator::single(), parallel_dims(recipe, 1));
  Training whole = training_of(recipe, one), half = training_of(half_recipe, one);
  const StepMetrics all = whole.step(), first = half.step();
  const auto want = gradient_noise(first.grad_norm * first.grad_norm, static_cast<double>(first.label_tokens),
                                   all.grad_norm * all.grad_norm, static_cast<double>(all.label_tokens));
  ASSERT_TRUE(want.has_value());
  EXPECT_NEAR(all.gradient_noise.signal, want->signal, 1e-10 * std::abs(want->signal));
  EXPECT_NEAR(all.gradient_noise.noise, want->noise, 1e-10 * std::abs(want->noise));
  EXPECT_GT(want->noise, 0.0);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, GradientNoiseTest,
    ::testing::Values(Cut{"shard", nullptr, config::ZeroStage::Zero3},
                      Cut{"zero1", nullptr, config::ZeroStage::Zero1},
                      Cut{"ddp", nullptr, config::ZeroStage::Ddp},
                      Cut{"replicate", &config::Recipe::dp_replicate_size, config::ZeroStage::Zero3},
                      Cut{"cp", &config::Recipe::context_parallel_size, config::ZeroStage::Zero3},
                      Cut{"tp", &config::Recipe::tensor_parallel_size, config::ZeroStage::Zero2},
                      Cut{"pp", &config::Recipe::pipeline_parallel_size, config::ZeroStage::Zero3}),
    [](const auto& info) { return info.param.what; });

// Gradients that are a mean plus noise of known size give these back, in the mean.
TEST(GradientNoiseFormulaTest, GivesSignalAndNoiseBack) {
  const double signal = 0.25, noise = 4000.0;
  for (const double first : {100.0, 500.0}) {
    const auto found = gradient_noise(signal + noise / first, first, signal + noise / 1000.0, 1000.0);
    ASSERT_TRUE(found.has_value());
    EXPECT_NEAR(found->signal, signal, 1e-12);
    EXPECT_NEAR(found->noise, noise, 1e-9);
  }
  EXPECT_FALSE(gradient_noise(1.0, 0.0, 1.0, 10.0).has_value());
  EXPECT_FALSE(gradient_noise(1.0, 10.0, 1.0, 10.0).has_value());
}

TEST(GradientNoiseFormulaTest, LinesHaveMeansAndTheirRatio) {
  StepMetrics step;
  step.step_s = 1.0;
  step.gradient_noise = {.signal = 2.0, .noise = 300.0, .steps = 1};
  MetricsWindow window;
  window.add(step);
  step.gradient_noise = {};
  window.add(step);
  window = MetricsWindow::from_json(window.to_json());
  step.gradient_noise = {.signal = 4.0, .noise = 600.0, .steps = 1};
  window.add(step);
  const auto json = to_json(window.take().gradient_noise);
  EXPECT_EQ(json.at("signal"), 3.0);
  EXPECT_EQ(json.at("noise"), 450.0);
  EXPECT_EQ(json.at("scale_tokens"), 150.0);
  EXPECT_TRUE(to_json(GradientNoise{.signal = -1.0, .noise = 5.0, .steps = 1}).at("scale_tokens").is_null());
}

}  // namespace
}  // namespace tessera::train
