#include "tessera/train/setup/freeze.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/io/file.h"
#include "tessera/models/registry.h"

#include "tests/models/reference_models.h"
#include "tests/testing/mpi_world.h"
#include "tests/train/training_testing.h"

namespace tessera::train {
namespace {

using ::testing::HasSubstr;

config::Recipe recipe_of(const std::string& folder, const std::vector<std::string>& patterns) {
  config::Recipe recipe;
  recipe.base_model = folder;
  recipe.dtype = config::ComputeType::Float64;
  recipe.learning_rate = 1e-2;
  recipe.lr_scheduler = ScheduleKind::Constant;
  recipe.max_steps = 3;
  recipe.micro_batch_size = 2;
  recipe.unfrozen_parameters = patterns;
  return recipe;
}

// Runs on every rank, with a model that the first one has written.
class Freeze : public ::testing::Test {
 protected:
  Freeze() : world_(testing::world()), folder_(world_) {
    if (folder_.is_owner()) {
      testing::write_tiny_model(folder_ / "llama", {});
      testing::write_tiny_model(folder_ / "mixtral", {.family = "mixtral"});
    }
    world_->barrier();
  }

  // Returns the names of the parameters that are trained.
  std::set<std::string> trained_by(const std::vector<std::string>& patterns,
                                   const std::string& model = "llama") {
    const bool is_written = io::exists(folder_ / model);
    const config::Recipe recipe =
        recipe_of(is_written ? folder_ / model : models::reference_folder(model), patterns);
    config::Problems problems;
    const PlannedModel planned = plan_model(recipe, models::BaseModel::open(recipe.base_model), problems);
    problems.settle();
    std::set<std::string> names;
    for (const auto& entry : planned.model->named_parameters()) {
      if (entry.value().requires_grad()) names.insert(entry.key());
    }
    return names;
  }
  std::string error_of(const std::vector<std::string>& patterns, const std::string& model = "llama") {
    try {
      trained_by(patterns, model);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  std::shared_ptr<comm::Communicator> world_;
  testing::SharedFolder folder_;
};

using Names = std::set<std::string>;

TEST_F(Freeze, PatternsAreWhatNamesBeginWith) {
  EXPECT_EQ(trained_by({"^model.norm.weight$"}), Names{"model.norm.weight"});
  EXPECT_EQ(trained_by({"model.layers.[1-9]+.mlp.down_proj", "model.norm"}),
            (Names{"model.layers.1.mlp.down_proj.weight", "model.norm.weight"}));
  EXPECT_EQ(trained_by({"model.layers.0.*", "model\\.norm\\.weight"}).count("model.norm.weight"), 1U);
  EXPECT_EQ(trained_by({"model.layers.0.*"}).count("model.layers.1.mlp.down_proj.weight"), 0U);
  // A dot stands for itself, unless a + follows it.
  EXPECT_EQ(trained_by({"model.+down_proj", "model.norm"}).size(), 3U);
  EXPECT_THAT(error_of({"modelxnorm"}), HasSubstr("no parameter is trained"));
}

TEST_F(Freeze, NamesInTheFilesCountToo) {
  const Names experts = trained_by({"model.layers.1.block_sparse_moe.experts"}, "mixtral");
  EXPECT_FALSE(experts.empty());
  for (const std::string& name : experts) EXPECT_THAT(name, HasSubstr("model.layers.1.")) << name;
  for (const std::string& name : experts) EXPECT_THAT(name, HasSubstr("experts")) << name;
}

TEST_F(Freeze, WhatAModelFreezesItselfStaysFrozen) {
  const Names names = trained_by({"model.layers.0"}, "gemma4");
  EXPECT_TRUE(names.contains("model.layers.0.input_layernorm.weight"));
  for (const std::string& name : names) EXPECT_THAT(name, ::testing::Not(HasSubstr("layer_scalar")));
}

TEST_F(Freeze, WhatCannotBeDoneIsRefused) {
  EXPECT_THAT(error_of({"^model.embed_tokens.weight$[:20000]"}), HasSubstr("has no such rows"));
  EXPECT_THAT(error_of({"model.norm[9:3]"}), HasSubstr("not a range of rows"));
  EXPECT_THAT(error_of({"model.norm[3]", "model.n"}),
              HasSubstr("one pattern trains all rows of 'model.norm.weight'"));
  EXPECT_THAT(error_of({"model.(norm"}), HasSubstr("not a regular expression; got 'model.(norm'"));
  EXPECT_THAT(error_of({"embed_tokens"}), HasSubstr("patterns that match the beginning of names"));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(trained_by({"model.norm", "embed_tokens"}).size(), 1U);
  const std::string told = ::testing::internal::GetCapturedStderr();
  const auto has_warning = HasSubstr("no parameter's name begins with 'embed_tokens'");
  EXPECT_TRUE(!folder_.is_owner() || ::testing::Value(told, has_warning)) << told;
}

// Trained parameters learn as they do if all are trained, except for the clipping; the others stay as they
// are.
TEST_F(Freeze, TheRestStaysAndAnyLayoutEqualsOneProcess) {
  const std::vector<std::string> patterns = {"model.layers.1.mlp", "lm_head", "model.embed_tokens"};
  const auto losses_on = [&](const std::shared_ptr<comm::Communicator>& ranks, config::Recipe recipe) {
    testing::TinyTraining run(recipe, ranks);
    for (const auto& tensor : run.training.tensors()) {
      const bool is_named = tensor.name.find("layers.1.mlp") != std::string::npos ||
                            tensor.name.find("embed_tokens") != std::string::npos ||
                            tensor.name.find("lm_head") != std::string::npos;
      EXPECT_TRUE(is_named) << tensor.name;
    }
    return run.run_to(3);
  };
  config::Recipe alone = recipe_of(folder_ / "llama", patterns);
  alone.micro_batch_size = 2 * world_->size();
  const std::vector<double> want = losses_on(comm::Communicator::single(), alone);
  for (const config::ZeroStage stage :
       {config::ZeroStage::Ddp, config::ZeroStage::Zero2, config::ZeroStage::Zero3}) {
    config::Recipe recipe = recipe_of(folder_ / "llama", patterns);
    recipe.zero_stage = stage;
    const std::vector<double> got = losses_on(world_, recipe);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-10 * want[i]);
  }
  if (world_->size() != 2) return;
  // The first stage of a pipeline trains the embedding, or no parameter at all.
  for (const std::vector<std::string>& of_stage : {patterns, {"model.layers.1.mlp"}}) {
    config::Recipe recipe = recipe_of(folder_ / "llama", of_stage);
    recipe.micro_batch_size = 2 * world_->size();
    recipe.pipeline_parallel_size = 2;
    recipe.pipeline_microbatches = 2;
    config::Recipe whole = recipe_of(folder_ / "llama", of_stage);
    whole.micro_batch_size = recipe.micro_batch_size;
    const std::vector<double> one = losses_on(comm::Communicator::single(), whole);
    const std::vector<double> got = losses_on(world_, recipe);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(got[i], one[i], 1e-10 * one[i]);
  }
}

TEST_F(Freeze, RowsAloneLearnUnderAnyLayout) {
  const std::vector<std::string> patterns = {"^model.embed_tokens.weight$[5:40]", "model.layers.1.mlp",
                                             "^model.embed_tokens.weight$[100]",
                                             "^model.embed_tokens.weight$[30:61]"};
  const auto is_trained = [](int64_t row) { return (row >= 5 && row < 61) || row == 100; };
  config::Recipe alone = recipe_of(folder_ / "llama", patterns);
  alone.micro_batch_size = 2 * world_->size();
  testing::TinyTraining one(alone, comm::Communicator::single());
  const std::vector<at::Tensor> before = one.values();
  const std::vector<double> want = one.run_to(3);
  const std::vector<at::Tensor> after = one.values();
  int64_t num_learned = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    if (one.training.tensors()[i].name != "parameter/model.embed_tokens.weight") continue;
    for (int64_t row = 0; row < before[i].size(0); ++row) {
      const bool has_learned = !at::equal(before[i][row], after[i][row]);
      num_learned += has_learned ? 1 : 0;
      EXPECT_TRUE(is_trained(row) || !has_learned) << row;
    }
  }
  EXPECT_GT(num_learned, 10);

  std::vector<config::Recipe> layouts(3, recipe_of(folder_ / "llama", patterns));
  layouts[1].zero_stage = config::ZeroStage::Ddp;
  if (world_->size() == 2) {
    layouts[2].tensor_parallel_size = 2;
    layouts[2].micro_batch_size = alone.micro_batch_size;
  }
  for (const config::Recipe& recipe : layouts) {
    const std::vector<double> got = testing::TinyTraining(recipe, world_).run_to(3);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-10 * want[i]);
  }
}

}  // namespace
}  // namespace tessera::train
