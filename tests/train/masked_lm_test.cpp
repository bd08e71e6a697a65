// Compares the training of masked language models under parallel layouts with one process.
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/config/load_recipe.h"
#include "tessera/core/rng.h"
#include "tessera/data/loader_options.h"
#include "tessera/data/token_masks.h"
#include "tessera/models/common/base_model.h"
#include "tessera/models/common/load.h"
#include "tessera/models/registry.h"
#include "tessera/train/run/trainer.h"
#include "tessera/train/setup/recipe_values.h"
#include "tessera/train/step/step.h"
#include "tessera/train/step/training.h"

#include "tests/testing/mpi_world.h"
#include "tests/train/training_testing.h"

namespace tessera::train {
namespace {

// Returns rows of 2 to 12 tokens, the first of which is never masked.
data::RowSet some_rows() {
  constexpr int64_t kVocabulary = 31, kRows = 11;
  const auto store = std::make_shared<data::RowStore>();
  data::RowSet rows{store,
                    {},
                    std::make_shared<const data::TokenMasks>(data::MaskOptions{
                        .probability = 0.3, .mask_token_id = 2, .vocab_size = kVocabulary})};
  for (int64_t number = 0; number < kRows; ++number) {
    const CounterRng rng(4, stream_of("rows"), static_cast<uint64_t>(number));
    data::Row row;
    row.input_ids.resize(2 + rng.below(0, 11));
    for (size_t i = 0; i < row.input_ids.size(); ++i)
      row.input_ids[i] = static_cast<int32_t>(3 + rng.below(1 + i, kVocabulary - 3));
    row.labels = row.input_ids;
    row.labels.front() = static_cast<int32_t>(kIgnoreLabel);
    rows.rows.push_back(store->size());
    store->append(row);
  }
  return rows;
}

struct Outcome {
  std::vector<double> losses, norms;
  Evaluated evaluated;
};

Outcome run(const config::Recipe& recipe, const std::shared_ptr<comm::Communicator>& world) {
  const parallel::DeviceMesh mesh(world, parallel_dims(recipe, world->size()));
  TrainedModel model = set_up_model(recipe, mesh);
  const data::RowSet rows = some_rows();
  const int64_t rank = mesh.coordinate(parallel::kAxisDp), size = mesh.size(parallel::kAxisDp);
  Training training(recipe, mesh,
                    std::make_unique<data::Loader>(rows, data::train_loader_options(recipe, rank, size)),
                    std::move(model));
  Outcome outcome;
  for (int step = 0; step < 3; ++step) {
    const StepMetrics metrics = training.step();
    outcome.losses.push_back(metrics.loss);
    outcome.norms.push_back(metrics.grad_norm);
  }
  data::Loader loader(rows, data::eval_loader_options(recipe, rank, size));
  outcome.evaluated = evaluate(training.trained(), mesh, loader, [](int64_t) { return true; }).value();
  return outcome;
}

struct Layout {
  const char* what;
  const char* model;
  int64_t config::Recipe::*axis = nullptr;  // the axis along which all ranks lie; null for dp_shard
  const char* more = "";
  int64_t most_ranks = 3;
};

class MaskedLayouts : public ::testing::TestWithParam<Layout> {};

TEST_P(MaskedLayouts, EqualOneProcess) {
  const auto world = testing::world();
  const Layout& layout = GetParam();
  if (world->size() > layout.most_ranks) return;
  const auto recipe_with = [&](int64_t accumulation) {
    return config::parse_recipe(
        "base_model: " + testing::reference_data("masked_lm/") + layout.model +
            "\ntask: masked_lm\ndatasets:\n  - path: none.jsonl\nlearning_rate: 0.01\nmax_steps: 3\n"
            "dtype: float64\nsequence_len: 24\nmicro_batch_size: 2\ngradient_accumulation_steps: " +
            std::to_string(accumulation) + "\n" + layout.more,
        "recipe.yaml");
  };
  const int64_t ranks = world->size();
  const Outcome want = run(recipe_with(ranks), comm::Communicator::single());
  config::Recipe recipe = recipe_with(layout.axis == nullptr ? 1 : ranks);
  if (layout.axis != nullptr) recipe.*layout.axis = ranks;
  const Outcome got = run(recipe, world);
  for (size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], want.losses[i], 1e-10 * want.losses[i]) << i;
    EXPECT_NEAR(got.norms[i], want.norms[i], 1e-9 * want.norms[i]) << i;
    EXPECT_GT(want.norms[i], 1e-3);
  }
  EXPECT_NE(want.losses[0], want.losses[2]);
  EXPECT_NEAR(got.evaluated.loss.value(), want.evaluated.loss.value(), 1e-9 * *want.evaluated.loss);
  EXPECT_EQ(got.evaluated.label_tokens, want.evaluated.label_tokens);
}

constexpr const char* kLora =
    "adapter: lora\nlora_r: 2\nlora_alpha: 4\nlora_target_linear: true\nlora_dropout: 0.2\n";

INSTANTIATE_TEST_SUITE_P(
    Layouts, MaskedLayouts,
    ::testing::Values(Layout{"shard", "bert"}, Layout{"packed", "roberta", nullptr, "sample_packing: true\n"},
                      Layout{"ddp", "distilbert", nullptr, "zero_stage: 0\n"},
                      Layout{"tp", "bert", &config::Recipe::tensor_parallel_size},
                      Layout{"tp_of_lora", "roberta", &config::Recipe::tensor_parallel_size, kLora},
                      Layout{"tp_of_modernbert", "modernbert", &config::Recipe::tensor_parallel_size},
                      Layout{"tp_of_distilbert", "distilbert", &config::Recipe::tensor_parallel_size},
                      Layout{"cp", "modernbert", &config::Recipe::context_parallel_size},
                      Layout{"pp", "roberta", &config::Recipe::pipeline_parallel_size, "", 2},
                      Layout{"lora", "distilbert", nullptr, kLora},
                      Layout{"recomputed", "modernbert", nullptr, "gradient_checkpointing: true\n"}),
    [](const auto& info) { return info.param.what; });

// A run from texts to the saved folder, interrupted once.
TEST(MaskedRun, ResumesAndSavesTheHead) {
  const auto world = testing::world();
  const testing::SharedFolder folder{world};
  const std::string classifier = testing::reference_data("classifiers/training/");
  const auto recipe_with = [&](const std::string& out, const std::string& more) {
    return config::parse_recipe(
        "base_model: " + classifier + "\ntask: masked_lm\ndatasets:\n  - path: " + classifier +
            "train.jsonl\n    field: sentence1\ntest_datasets:\n  - path: " + classifier +
            "eval.jsonl\n    field: sentence1\nlearning_rate: 0.01\nsequence_len: 16\nmicro_batch_size: 2\n"
            "dtype: float64\nmax_steps: 6\nwhole_word_mask: true\neval_strategy: steps\neval_steps: 3\n"
            "save_strategy: steps\nsave_steps: 3\nlogging_steps: 1\noutput_dir: " +
            (folder / out) + "\n" + more,
        "recipe.yaml");
  };
  train(recipe_with("whole", ""), world);
  world->barrier();
  train(recipe_with("resumed", "resume_from_checkpoint: " + (folder / "whole/checkpoint-3") + "\n"), world);
  if (!folder.is_owner()) return;
  const auto whole = testing::metrics_with(folder / "whole/metrics.jsonl", "loss"),
             resumed = testing::metrics_with(folder / "resumed/metrics.jsonl", "loss");
  ASSERT_EQ(whole.size(), 6U);
  ASSERT_EQ(resumed.size(), whole.size()) << "with the steps before the checkpoint";
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(resumed[i]["loss"], whole[i]["loss"]) << i;
  EXPECT_EQ(testing::metrics_with(folder / "whole/metrics.jsonl", "eval_loss").back()["eval_loss"],
            testing::metrics_with(folder / "resumed/metrics.jsonl", "eval_loss").back()["eval_loss"]);
  const models::BaseModel made = models::BaseModel::open(folder / "whole");
  EXPECT_TRUE(made.config().is_masked_lm);
  models::check_tensors(*models::build_model(made.config(), at::kFloat), *made.tensors());
}

TEST(MaskedRun, ModelsThatDoNotFitAreRefused) {
  const auto refused = [](const std::string& model, const std::string& more) {
    const config::Recipe recipe =
        config::parse_recipe("base_model: " + testing::reference_data(model) +
                                 "\ndatasets:\n  - path: none.jsonl\n    type: completion\nlearning_rate: "
                                 "0.01\nmax_steps: 1\n" +
                                 more,
                             "recipe.yaml");
    try {
      train(recipe, testing::world());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const std::string tokenizer = "tokenizer_config: " + testing::reference_data("classifiers/training") + "\n";
  const struct {
    const char* model;
    std::string more;
    const char* part;
  } cases[] = {{"classifiers/training", "task: masked_lm\nadapter: lora\nlora_target_linear: true\n",
                "lacks the head"},
               {"masked_lm/roberta", tokenizer, "the base model is an encoder; got task: causal_lm"},
               {"masked_lm/roberta", "task: masked_lm\n", "no tokenizer"},
               {"models/llama3", tokenizer + "task: masked_lm\n", "only an encoder becomes"}};
  for (const auto& one : cases)
    EXPECT_NE(refused(one.model, one.more).find(one.part), std::string::npos)
        << one.part << ": " << refused(one.model, one.more);
}

}  // namespace
}  // namespace tessera::train
