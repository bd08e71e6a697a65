#include "tessera/train/setup/parameter_rates.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/train/setup/optimizer_targets.h"

#include "tests/io/expect_error.h"
#include "tests/testing/mpi_world.h"
#include "tests/train/training_testing.h"

namespace tessera::train {
namespace {

using ::testing::HasSubstr;

const nn::ParameterRoles kRoles = {{"model.embed_tokens.weight", nn::ParameterRole::Embedding},
                                   {"lm_head.weight", nn::ParameterRole::OutputHead},
                                   {"transformer.wpe.weight", nn::ParameterRole::Positions}};

optim::OptimizedTile tile_of(const config::Recipe& recipe, const std::string& name,
                             std::vector<int64_t> shape = {4, 4}) {
  std::vector<optim::OptimizedTile> tiles(1);
  tiles[0].name = name;
  tiles[0].weight_decay = 0.1;
  tiles[0].layout = {std::move(shape), DType::F32, {}};
  set_learning_rates(recipe, kRoles, tiles);
  return tiles[0];
}

TEST(ParameterRates, EmbeddingsAndGroupsAsAxolotlHasThem) {
  config::Recipe recipe;
  recipe.learning_rate = 1e-3;
  recipe.embedding_lr = 1e-4;
  recipe.lr_groups = {{"attention", {"q_proj", "k_proj"}, 2e-3}, {"rest", {"proj"}, 5e-4}};
  EXPECT_DOUBLE_EQ(tile_of(recipe, "model.embed_tokens.weight").lr_scale, 0.1);
  EXPECT_DOUBLE_EQ(tile_of(recipe, "lm_head.weight").lr_scale, 0.1);
  EXPECT_DOUBLE_EQ(tile_of(recipe, "transformer.wpe.weight").lr_scale, 1.0);
  EXPECT_EQ(tile_of(recipe, "lm_head.weight").weight_decay, 0.0);
  EXPECT_DOUBLE_EQ(tile_of(recipe, "model.layers.0.self_attn.q_proj.weight").lr_scale, 2.0);
  EXPECT_DOUBLE_EQ(tile_of(recipe, "model.layers.0.mlp.up_proj.weight").lr_scale, 0.5);
  EXPECT_EQ(tile_of(recipe, "model.layers.0.mlp.up_proj.weight").weight_decay, 0.1);
  EXPECT_EQ(tile_of(recipe, "model.layers.0.self_attn.q_proj.bias", {4}).lr_scale, 1.0);
  EXPECT_EQ(tile_of(recipe, "model.norm.weight", {4}).lr_scale, 1.0);
  recipe.embedding_lr.reset();
  recipe.embedding_lr_scale = 3.0;
  EXPECT_EQ(tile_of(recipe, "lm_head.weight").lr_scale, 3.0);
  config::Recipe plain;
  plain.learning_rate = 1e-3;
  EXPECT_EQ(tile_of(plain, "lm_head.weight").lr_scale, 1.0);
  EXPECT_EQ(tile_of(plain, "lm_head.weight").weight_decay, 0.1);
}

TEST(ParameterRates, LoraPlusSpeedsUpTheSecondMatrices) {
  config::Recipe recipe;
  recipe.learning_rate = 1e-3;
  recipe.loraplus_lr_ratio = 16.0;
  EXPECT_EQ(tile_of(recipe, "model.layers.0.self_attn.q_proj.lora_A.weight").lr_scale, 1.0);
  EXPECT_EQ(tile_of(recipe, "model.layers.0.self_attn.q_proj.lora_B.weight").lr_scale, 16.0);
}

TEST(ParameterRates, KeysThatMeanNothingAreToldOf) {
  config::Recipe recipe;
  recipe.learning_rate = 1e-3;
  recipe.embedding_lr = 1e-4;
  recipe.lr_groups = {{"typo", {"q_porj"}, 2e-3}, {"there", {"q_proj"}, 2e-3}};
  ::testing::internal::CaptureStderr();
  warn_of_unused_rates(recipe, kRoles, {"model.layers.0.self_attn.q_proj.lora_A.weight"});
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("'embedding_lr' has no effect: no embedding is trained"));
  EXPECT_THAT(told, HasSubstr("the group 'typo' matches no trained parameter"));
  EXPECT_THAT(told, ::testing::Not(HasSubstr("'there'")));
}

TEST(ParameterRates, TargetsOfAnOptimizerAreNamedAsInTransformers) {
  const std::string query = "model.layers.0.self_attn.q_proj.weight",
                    up = "model.layers.0.mlp.up_proj.weight";
  const auto targets = [&](const std::vector<std::string>& modules) {
    std::vector<optim::OptimizedTile> tiles(2);
    tiles[0].name = query;
    tiles[1].name = up;
    set_targets(modules, tiles);
    return std::pair(tiles[0].is_target, tiles[1].is_target);
  };
  EXPECT_EQ(targets({}), std::pair(std::optional<bool>(), std::optional<bool>()));
  EXPECT_EQ(targets({"attn"}), std::pair(std::optional(true), std::optional(false)));
  EXPECT_EQ(targets({R"(model\.layers\.\d\.mlp\..*)"}), std::pair(std::optional(false), std::optional(true)));
  EXPECT_EQ(targets({"attn", "mlp"}), std::pair(std::optional(true), std::optional(true)));
  EXPECT_EQ(targets({"all-linear"}), std::pair(std::optional(true), std::optional(true)));
  check_targets({"attn"}, {query, up});
  testing::expect_error(ErrorKind::Config, {"OPTIM-TARGET", "got atn", query}, [&] {
    check_targets({"atn"}, {query, up});
  });
}

// The first update of Adam moves every element by the learning rate, whatever its gradient.
TEST(ParameterRates, ReachEveryTileOfEveryRank) {
  const auto world = testing::world();
  const testing::SharedFolder folder(world);
  config::Recipe recipe;
  recipe.base_model = folder / "model";
  if (folder.is_owner()) testing::write_tiny_model(recipe.base_model, {});
  world->barrier();
  recipe.dtype = config::ComputeType::Float64;
  recipe.random_init = true;
  recipe.learning_rate = 1e-3;
  recipe.lr_scheduler = ScheduleKind::Constant;
  recipe.max_steps = 1;
  recipe.max_grad_norm = 0.0;
  recipe.adam_epsilon = 1e-30;
  recipe.embedding_lr = 5e-4;
  recipe.lr_groups = {{"attention", {"q_proj"}, 4e-3}};
  testing::TinyTraining run(recipe, world);
  const auto before = run.values();
  std::vector<std::string> names;
  for (const auto& tensor : run.training.tensors()) names.push_back(tensor.name);
  run.run_to(1);
  const auto after = run.values();
  int64_t seen = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!names[i].starts_with(kParameterPrefix) || before[i].numel() == 0) continue;
    const bool is_embedding =
        names[i].find("embed_tokens") != std::string::npos || names[i].find("lm_head") != std::string::npos;
    const double want = is_embedding                                          ? 5e-4
                        : names[i].find("q_proj.weight") != std::string::npos ? 4e-3
                                                                              : 1e-3;
    const double moved = (after[i] - before[i]).abs().max().item<double>();
    if (moved == 0.0) continue;  // embedding rows of tokens that did not occur
    EXPECT_NEAR(moved, want, 1e-9) << names[i];
    ++seen;
  }
  EXPECT_GT(seen, 5);
}

}  // namespace
}  // namespace tessera::train
