// Tests that a checkpoint which is saved under one layout, loaded and saved under another, and loaded and
// saved under the first again has the same bytes of every parameter and optimizer state.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "tessera/checkpoint/save_checkpoint.h"
#include "tessera/checkpoint/sharded_checkpoint.h"

#include "tests/testing/mpi_world.h"
#include "tests/testing/shared_random.h"
#include "tests/train/training_testing.h"

namespace tessera::train {
namespace {

using testing::TinyTraining;

// A model with tied embeddings. The rows of no matrix divide evenly over 3 ranks, nor do five layers over 2,
// 3 or 4 stages.
testing::TinyModel model_of(const std::string& family) {
  testing::TinyModel model;
  model.family = family;
  model.layers = 5;
  model.vocab = 265;
  model.intermediate = 44;
  return model;
}

class RandomRecipes {
 public:
  RandomRecipes(const std::mt19937_64& random, int64_t ranks) : random_(random), ranks_(ranks) {}

  // Returns a recipe with a random product of axes that makes the number of ranks.
  config::Recipe recipe(const std::string& base_model, const std::string& family, bool has_adapter) {
    config::Recipe recipe;
    recipe.base_model = base_model;
    recipe.dtype = config::ComputeType::Float32;
    recipe.max_steps = 8;
    recipe.learning_rate = 0.03;
    recipe.micro_batch_size = 1;
    recipe.gradient_accumulation_steps = 4;
    int64_t left = ranks_;
    const auto take = [&](auto allows) {
      std::vector<int64_t> sizes;
      for (int64_t size = 1; size <= left; ++size) {
        if (left % size == 0 && allows(size)) sizes.push_back(size);
      }
      const int64_t size = sizes[random_() % sizes.size()];
      left /= size;
      return size;
    };
    // Tensor parallelism is not over 3 ranks: the model has four heads, of which each pair shares its keys.
    recipe.tensor_parallel_size = take([](int64_t size) { return size != 3; });
    recipe.pipeline_parallel_size = take([](int64_t) { return true; });
    recipe.context_parallel_size = take([](int64_t) { return true; });
    recipe.dp_replicate_size = take([](int64_t) { return true; });
    recipe.zero_stage = static_cast<config::ZeroStage>(random_() % 4);
    if (family == "mixtral" && recipe.zero_stage != config::ZeroStage::Ddp && random_() % 2 == 0)
      recipe.expert_parallel_size = left * recipe.context_parallel_size;
    if (has_adapter) {
      recipe.adapter = config::AdapterKind::Lora;
      recipe.lora_target_linear = true;
      recipe.lora_modules_to_save = {"norm"};
    }
    return recipe;
  }

 private:
  std::mt19937_64 random_;
  const int64_t ranks_;
};

std::string describe(const config::Recipe& recipe) {
  return "tp " + std::to_string(recipe.tensor_parallel_size) + ", pp " +
         std::to_string(recipe.pipeline_parallel_size) + ", cp " +
         std::to_string(recipe.context_parallel_size) + ", ep " +
         std::to_string(recipe.expert_parallel_size) + ", dp_replicate " +
         std::to_string(recipe.dp_replicate_size) + ", zero_stage " +
         std::to_string(static_cast<int>(recipe.zero_stage));
}

class CheckpointLayoutsTest : public ::testing::Test {
 protected:
  std::string save(TinyTraining& run, int64_t step) const {
    const std::string out = folder_ / "out";
    checkpoint::save_checkpoint(run.training.tensors(), {step, "a-run", {}, {}}, out, *world_);
    return out + "/checkpoint-" + std::to_string(step);
  }
  void load(TinyTraining& run, const std::string& path) const {
    const auto checkpoint = checkpoint::ShardedCheckpoint::open(path);
    checkpoint->verify(world_->rank(), world_->size());
    checkpoint::load_checkpoint(*checkpoint, run.training.tensors());
  }

  std::shared_ptr<comm::Communicator> world_ = testing::world();
  testing::SharedFolder folder_{world_};
};

TEST_F(CheckpointLayoutsTest, ThereAndBackGivesTheSameBytes) {
  RandomRecipes random(testing::shared_random().engine(), world_->size());
  if (folder_.is_owner()) {
    for (const char* family : {"llama", "mixtral"})
      testing::write_tiny_model(folder_ / family, model_of(family));
  }
  world_->barrier();
  constexpr int kPairs = 6;
  for (int pair = 0; pair < kPairs; ++pair) {
    const std::string family = pair % 3 == 2 ? "mixtral" : "llama";
    const bool has_adapter = pair % 3 == 1;
    config::Recipe a = random.recipe(folder_ / family, family, has_adapter),
                   b = random.recipe(folder_ / family, family, has_adapter);
    const bool has_bf16_states = pair % 2 == 1;
    if (has_bf16_states) a.optimizer_state_dtype = b.optimizer_state_dtype = config::StateType::BFloat16;
    SCOPED_TRACE(family + (has_adapter ? " with an adapter: " : ": ") + describe(a) + "; " + describe(b) +
                 (has_bf16_states ? ", states in bfloat16" : ""));
    const int64_t step = 10 * pair;
    TinyTraining first(a, world_), other(b, world_), again(a, world_);
    (void)first.run_to(2);
    const std::string saved = save(first, step + 1);
    load(other, saved);
    const std::string moved = save(other, step + 2);
    load(again, moved);
    const std::string back = save(again, step + 3);
    world_->barrier();
    // Whose bytes are compared only here, as the manifests name other steps.
    const auto want = checkpoint::ShardedCheckpoint::open(saved),
               got = checkpoint::ShardedCheckpoint::open(back);
    ASSERT_EQ(got->manifest().files, want->manifest().files);
    if (folder_.is_owner()) {
      for (const auto& [file, bytes] : want->manifest().files) {
        EXPECT_TRUE(io::read_file(saved + "/" + file, INT64_MAX) ==
                    io::read_file(back + "/" + file, INT64_MAX))
            << file;
      }
      ASSERT_EQ(got->manifest().tensors.size(), want->manifest().tensors.size());
      const auto is_state = [](const auto& tensor) {
        return tensor.name.find("exp_avg") != std::string::npos;
      };
      EXPECT_TRUE(std::ranges::any_of(want->manifest().tensors, is_state));
      for (const auto& tensor : want->manifest().tensors) {
        if (!is_state(tensor)) continue;
        EXPECT_EQ(tensor.layout.dtype(), has_bf16_states ? DType::BF16 : DType::F32) << tensor.name;
      }
    }
    const auto tiles = first.values(), tiles_again = again.values();
    for (size_t i = 0; i < tiles.size(); ++i) EXPECT_TRUE(at::equal(tiles[i], tiles_again[i])) << i;
    // The steps that follow agree too.
    again.training.go_on(first.training.state());
    EXPECT_EQ(again.run_to(3), first.run_to(3));
  }
}

// States in float32 are converted to the nearest bfloat16, and those in bfloat16 to the same float32.
TEST_F(CheckpointLayoutsTest, StatesAreConvertedToTheTypeOfTheRun) {
  if (folder_.is_owner()) testing::write_tiny_model(folder_ / "llama", model_of("llama"));
  world_->barrier();
  config::Recipe wide =
      RandomRecipes(std::mt19937_64(1), world_->size()).recipe(folder_ / "llama", "llama", false);
  config::Recipe narrow = wide;
  narrow.optimizer_state_dtype = config::StateType::BFloat16;
  TinyTraining first(wide, world_), second(narrow, world_), third(wide, world_);
  (void)first.run_to(2);
  load(second, save(first, 1));
  load(third, save(second, 2));
  const auto tensors = first.training.tensors();
  const auto of_first = first.values(), of_second = second.values(), of_third = third.values();
  int64_t converted = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool is_state = tensors[i].name.find("/exp_avg") != std::string::npos;
    if (is_state) converted += at::equal(of_third[i], of_first[i]) ? 0 : 1;
    EXPECT_TRUE(at::equal(of_second[i], is_state ? of_first[i].to(at::kBFloat16) : of_first[i]))
        << tensors[i].name;
    EXPECT_TRUE(at::equal(of_third[i], of_second[i].to(of_third[i].scalar_type()))) << tensors[i].name;
  }
  EXPECT_GT(converted, 0);
}

}  // namespace
}  // namespace tessera::train
