// Tests that a training which goes on from another's state gives the numbers of that one.
#include "tessera/train/step/training.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "tessera/device/deterministic.h"
#include "tessera/train/step/run_schedule.h"

#include "tests/io/expect_error.h"
#include "tests/testing/mpi_world.h"
#include "tests/testing/shared_random.h"
#include "tests/train/training_testing.h"

namespace tessera::train {
namespace {

using testing::TinyTraining;

struct RunCase {
  bool has_adapter = false;
  config::OptimizerKind optimizer = config::OptimizerKind::AdamW;
  config::ZeroStage stage = config::ZeroStage::Zero3;
  config::ComputeType dtype = config::ComputeType::Float32;
  int64_t accumulation = 1;
  bool packing = false;
  bool has_bf16_states = false;
};

std::string describe(const RunCase& run) {
  return std::string(run.has_adapter ? "adapter" : "full") +
         (run.optimizer == config::OptimizerKind::Sgd ? ", SGD" : ", AdamW") + ", stage " +
         std::to_string(static_cast<int>(run.stage)) + ", accumulation " + std::to_string(run.accumulation);
}

class TrainingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (folder_.is_owner()) testing::write_tiny_model(folder_ / "model", {});
    world_->barrier();
  }

  config::Recipe recipe_of(const RunCase& run) const {
    config::Recipe recipe;
    recipe.base_model = folder_ / "model";
    recipe.dtype = run.dtype;
    recipe.zero_stage = run.stage;
    recipe.optimizer = run.optimizer;
    recipe.learning_rate = 0.03;
    recipe.weight_decay = 0.1;
    recipe.max_steps = 14;
    recipe.micro_batch_size = 1;
    recipe.gradient_accumulation_steps = run.accumulation;
    recipe.sample_packing = run.packing;
    recipe.sequence_len = 24;
    if (run.has_bf16_states) recipe.optimizer_state_dtype = config::StateType::BFloat16;
    if (run.has_adapter) {
      recipe.adapter = config::AdapterKind::Lora;
      recipe.lora_target_linear = true;
      recipe.lora_dropout = 0.2;
      recipe.lora_modules_to_save = {"norm"};
      recipe.loraplus_lr_ratio = 4.0;
      recipe.neftune_noise_alpha = 5.0;
      recipe.label_smoothing_factor = 0.1;
    } else {
      recipe.embedding_lr = 0.02;
      recipe.lr_groups = {{"attention", {"q_proj"}, 0.05}};
      recipe.group_by_length = !run.packing;
    }
    return recipe;
  }

  std::shared_ptr<comm::Communicator> world_ = testing::world();
  testing::SharedFolder folder_{world_};
};

TEST_F(TrainingTest, ARunGoesOnFromAnothersState) {
  testing::Random random = testing::shared_random();
  const std::vector<RunCase> cases = {
      {},
      {.accumulation = 2},
      {.dtype = config::ComputeType::BFloat16},
      {.dtype = config::ComputeType::BFloat16, .has_bf16_states = true},
      {.dtype = config::ComputeType::Float16},
      {.optimizer = config::OptimizerKind::Sgd, .stage = config::ZeroStage::Zero2, .accumulation = 3},
      {.has_adapter = true, .stage = config::ZeroStage::Zero1, .accumulation = 2},
      {.has_adapter = true, .optimizer = config::OptimizerKind::Sgd, .stage = config::ZeroStage::Ddp},
      {.dtype = config::ComputeType::Float64, .accumulation = 2, .packing = true},
  };
  for (const RunCase& run : cases) {
    const config::Recipe recipe = recipe_of(run);
    const auto stop = random.in(1, 12);
    SCOPED_TRACE(describe(run) + ", stopped after step " + std::to_string(stop));
    TinyTraining whole(recipe, world_);
    whole.run_to(stop);
    const TrainState state = whole.training.state();
    const std::vector<at::Tensor> values = whole.values();
    const std::vector<double> want = whole.run_to(recipe.max_steps);

    TinyTraining resumed(recipe, world_);
    // The resumed training is at another step and has other values, so a state that is not set would show.
    resumed.run_to(1 + stop % 2);
    resumed.training.go_on(state);
    const auto tensors = resumed.training.tensors();
    ASSERT_EQ(tensors.size(), values.size());
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].set(values[i]);
    EXPECT_EQ(resumed.run_to(recipe.max_steps), want);
    EXPECT_EQ(resumed.training.state().tokens, whole.training.state().tokens);
    EXPECT_EQ(resumed.training.state().cursor, whole.training.state().cursor);
    EXPECT_EQ(resumed.training.state().first_loss, whole.training.state().first_loss);
    EXPECT_EQ(resumed.training.state().last_loss, whole.training.state().last_loss);
    const auto got_values = resumed.values(), want_values = whole.values();
    for (size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_TRUE(at::equal(got_values[i], want_values[i])) << tensors[i].name;
    }
  }
}

// Dropout and the noise of embeddings belong to the sequences of a step, whatever micro-batches hold them.
TEST_F(TrainingTest, WhatIsDroppedDoesNotDependOnTheMicroBatch) {
  for (const bool packing : {false, true}) {
    config::Recipe recipe = recipe_of({.has_adapter = true});
    recipe.dtype = config::ComputeType::Float64;
    recipe.sample_packing = packing;
    recipe.gradient_accumulation_steps = 4;
    const std::vector<double> want = TinyTraining(recipe, world_).run_to(3);
    recipe.gradient_accumulation_steps = 1;
    recipe.micro_batch_size = 4;
    const std::vector<double> got = TinyTraining(recipe, world_).run_to(3);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-11) << packing << ' ' << i;
    recipe.seed += 1;
    EXPECT_NE(TinyTraining(recipe, world_).run_to(1)[0], got[0]);
  }
}

TEST_F(TrainingTest, StatesInBfloat16TrainAsThoseInFloat32) {
  config::Recipe recipe = recipe_of({});
  recipe.max_steps = 20;
  TinyTraining wide(recipe, world_);
  recipe.optimizer_state_dtype = config::StateType::BFloat16;
  TinyTraining narrow(recipe, world_);
  const std::vector<double> want = wide.run_to(20), got = narrow.run_to(20);
  EXPECT_LT(want.back(), 0.9 * want.front()) << "it learns";
  double most = 0.0;
  for (size_t i = 0; i < want.size(); ++i) most = std::max(most, std::abs(got[i] / want[i] - 1));
  EXPECT_LT(most, 0.02);
  EXPECT_GT(most, 0.0) << "they are rounded";
}

// Every rank names the same tensors, each once, and a tensor's box has the size of the values that the rank
// holds.
TEST_F(TrainingTest, TensorsAreNamedAlikeAndLieInTheirBoxes) {
  TinyTraining run(recipe_of({}), world_);
  run.run_to(2);
  std::string names;
  int64_t steps = 0;
  std::set<std::string> seen;
  for (const auto& tensor : run.training.tensors()) {
    EXPECT_TRUE(seen.insert(tensor.name).second) << tensor.name;
    names += tensor.name + '\n';
    const at::Tensor values = tensor.get();
    EXPECT_EQ(values.sizes().vec(), tensor.box().size) << tensor.name;
    if (!tensor.name.ends_with("/step")) continue;
    ++steps;
    EXPECT_EQ(tensor.layout.num_replicas(), tensor.layout.num_ranks());
    EXPECT_EQ(values.item<double>(), 2.0) << tensor.name;
  }
  EXPECT_EQ(static_cast<int64_t>(seen.size()), 4 * steps);
  EXPECT_GT(steps, 0);
  for (const std::string& of_rank : world_->all_gather_string(names)) EXPECT_EQ(of_rank, names);
}

// Losses of float16 follow those of float64, on any number of ranks. If the loss scale makes gradients
// overflow, the step changes nothing, and the scale is halved until they fit.
TEST_F(TrainingTest, Float16SkipsStepsThatOverflowAndFollowsFloat64) {
  for (const bool has_adapter : {false, true}) {
    config::Recipe recipe = recipe_of({.has_adapter = has_adapter, .accumulation = 2});
    recipe.lora_dropout = 0.0;
    recipe.learning_rate = 0.003;
    recipe.dtype = config::ComputeType::Float64;
    const std::vector<double> want = TinyTraining(recipe, world_).run_to(6);
    recipe.dtype = config::ComputeType::Float16;
    recipe.initial_scale_power = 8;
    TinyTraining plain(recipe, world_);
    const std::vector<double> got = plain.run_to(6);
    ASSERT_EQ(plain.training.state().scaler.num_skipped(), 0);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 0.01 * want[i]) << i;

    recipe.initial_scale_power = 40;
    recipe.max_steps = 60;  // the learning rate depends on it
    TinyTraining scaled(recipe, world_);
    const std::vector<at::Tensor> before = scaled.values();
    scaled.run_to(1);
    EXPECT_EQ(scaled.training.state().scaler.num_skipped(), 1);
    testing::expect_error(ErrorKind::Numerics, {"E-NUMERICS-NO-UPDATE", "1 steps"},
                          [&] { scaled.training.refuse_without_update(); });
    EXPECT_EQ(scaled.training.state().scaler.scale(), std::ldexp(1.0, 39));
    const auto names = scaled.training.tensors();
    const std::vector<at::Tensor> after = scaled.values();
    for (size_t i = 0; i < after.size(); ++i) EXPECT_TRUE(at::equal(after[i], before[i])) << names[i].name;
    // The schedule waits for steps that overflow: each rate is that of the updates made before.
    const optim::Schedule schedule = make_schedule(recipe, recipe.max_steps, 1);
    while (scaled.training.state().step < 40) {
      const int64_t updates = scaled.training.state().step - scaled.training.state().scaler.num_skipped();
      EXPECT_EQ(scaled.training.step().lr, schedule.at(updates));
    }
    EXPECT_NO_THROW(scaled.training.refuse_without_update());
    EXPECT_LT(scaled.training.state().scaler.num_skipped(), 38);
    EXPECT_LT(scaled.training.state().scaler.scale(), std::ldexp(1.0, 39));
    EXPECT_TRUE(std::isfinite(scaled.training.state().last_loss));
    EXPECT_FALSE(at::equal(scaled.values()[0], before[0])) << names[0].name;
  }
}

TEST_F(TrainingTest, APositionOutsideTheDataIsRefused) {
  TinyTraining run(recipe_of({}), world_);
  TrainState state = run.training.state();
  state.cursor.sample = 11;
  EXPECT_THROW(run.training.go_on(state), Error);
}

// Two runs on the CPU give the same bits, with and without the key `deterministic`.
TEST_F(TrainingTest, TwoRunsGiveTheSameBits) {
  struct Off {
    ~Off() { at::globalContext().setDeterministicAlgorithms(false, false); }
  } off;
  for (const RunCase& run : {RunCase{.dtype = config::ComputeType::BFloat16},
                             RunCase{.accumulation = 2, .packing = true}, RunCase{.has_adapter = true}}) {
    SCOPED_TRACE(describe(run));
    const config::Recipe recipe = recipe_of(run);
    at::globalContext().setDeterministicAlgorithms(false, false);
    TinyTraining first(recipe, world_);
    const std::vector<double> losses = first.run_to(5);
    for (const bool has_key : {false, true}) {
      if (has_key) compute_deterministically();
      TinyTraining second(recipe, world_);
      EXPECT_EQ(second.run_to(5), losses);
      const auto got = second.values(), want = first.values();
      for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(at::equal(got[i], want[i])) << i << has_key;
    }
  }
}

}  // namespace
}  // namespace tessera::train
