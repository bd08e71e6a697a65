// Tests that numbers which are not finite, or not the same on all ranks that hold them, are named.
#include "tessera/train/step/bad_numbers.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/train/run/replica_check.h"

#include "tests/io/expect_error.h"
#include "tests/testing/mpi_world.h"
#include "tests/train/training_testing.h"

namespace tessera::train {
namespace {

using testing::expect_error;
using ::testing::HasSubstr;
using testing::TinyTraining;

class BadNumbersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (folder_.is_owner()) testing::write_tiny_model(folder_ / "model", {});
    world_->barrier();
  }

  config::Recipe recipe_of(config::ZeroStage stage) const {
    config::Recipe recipe;
    recipe.base_model = folder_ / "model";
    recipe.zero_stage = stage;
    recipe.learning_rate = 0.03;
    recipe.max_steps = 14;
    recipe.replica_check_steps = 2;
    return recipe;
  }
  // Sets an element of a parameter, on the ranks that hold it.
  static void spoil(TinyTraining& run, const std::string& name, int64_t row, double value) {
    for (const auto& parameter : run.training.trained().sharded->parameters()) {
      const int64_t place = parameter.box.offset.empty() ? 0 : row - parameter.box.offset[0];
      if (parameter.name == name && place >= 0 && place < parameter.box.size[0])
        parameter.tile.detach()[place].fill_(value);
    }
  }

  std::shared_ptr<comm::Communicator> world_ = testing::world();
  testing::SharedFolder folder_{world_};
};

TEST_F(BadNumbersTest, ALossThatIsNotFiniteNamesTheFirstBadParameter) {
  for (const auto stage : {config::ZeroStage::Ddp, config::ZeroStage::Zero3}) {
    TinyTraining run(recipe_of(stage), world_);
    run.training.step();
    spoil(run, "model.layers.1.mlp.up_proj.weight", 39, std::nan(""));
    spoil(run, "model.norm.weight", 0, std::nan(""));
    expect_error(ErrorKind::Numerics,
                 {"E-NUMERICS-LOSS", "step 2", "parameter 'model.layers.1.mlp.up_proj.weight'", "on rank "},
                 [&] { run.training.step(); });
  }
}

TEST_F(BadNumbersTest, ALossThatIsNotFiniteNamesTheFirstBadOutput) {
  for (const auto stage : {config::ZeroStage::Ddp, config::ZeroStage::Zero3}) {
    TinyTraining run(recipe_of(stage), world_);
    // The weights are finite, but their products are not.
    for (int64_t row = 0; row < 24; ++row) {
      spoil(run, "model.layers.1.mlp.down_proj.weight", row, 3e38);
    }
    expect_error(ErrorKind::Numerics, {"E-NUMERICS-LOSS", "that of 'model.layers.1', on rank "},
                 [&] { run.training.step(); });
  }
}

TEST_F(BadNumbersTest, WeightsThatAreNotFiniteAreToldWithTheirNumber) {
  for (const auto stage : {config::ZeroStage::Ddp, config::ZeroStage::Zero3}) {
    TinyTraining run(recipe_of(stage), world_);
    check_finite_weights(run.training.trained(), *world_, true);
    spoil(run, "model.layers.0.mlp.up_proj.weight", 3, INFINITY);
    spoil(run, "model.layers.0.mlp.up_proj.weight", 38, std::nan(""));
    spoil(run, "model.norm.weight", 5, -INFINITY);
    ::testing::internal::CaptureStderr();
    check_finite_weights(run.training.trained(), *world_, false);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("'model.layers.0.mlp.up_proj.weight' (48 values), 'model.norm.weight' (1 values)"));
    expect_error(ErrorKind::Model, {"E-MODEL-NOT-FINITE", "(48 values)", "strict_finite"},
                 [&] { check_finite_weights(run.training.trained(), *world_, true); });
  }
}

TEST_F(BadNumbersTest, ACopyThatDiffersNamesItsRank) {
  if (world_->size() == 1) return;
  TinyTraining run(recipe_of(config::ZeroStage::Ddp), world_);
  ReplicaCheck check(run.training, *world_);
  run.training.step();
  check.after_step(run.training.state());
  run.training.step();
  check.after_step(run.training.state());
  // One bit flips in one rank's memory.
  if (world_->rank() == 1) {
    for (const auto& tensor : run.training.tensors()) {
      if (tensor.name == "parameter/model.layers.1.self_attn.q_proj.weight") {
        auto* const bits = static_cast<uint32_t*>(tensor.get().mutable_data_ptr());
        bits[7] ^= 1U << 21;
      }
    }
  }
  run.training.step();
  check.after_step(run.training.state());  // the check is not due yet
  run.training.step();
  const std::string ranks = world_->size() == 2 ? "rank " : "rank 1 has other values than ranks 0";
  expect_error(ErrorKind::Numerics, {"E-NUMERICS-REPLICAS", "after step 4", ranks},
               [&] { check.after_step(run.training.state()); });
}

TEST_F(BadNumbersTest, PartsThatDifferAreNoCopies) {
  TinyTraining run(recipe_of(config::ZeroStage::Zero3), world_);
  ReplicaCheck check(run.training, *world_);
  for (int step = 0; step < 4; ++step) {
    run.training.step();
    check.after_step(run.training.state());
  }
}

}  // namespace
}  // namespace tessera::train
