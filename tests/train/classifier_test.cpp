// Compares the training of classifiers under parallel layouts with one process.
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/config/load_recipe.h"
#include "tessera/core/rng.h"
#include "tessera/data/loader_options.h"
#include "tessera/generation/load_for_inference.h"
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

constexpr int64_t kVocabulary = 31, kRows = 11;

// Marks every position of a row that is read, and the second text of a pair.
void mark_read(const models::ModelConfig& model, bool is_pair, data::Row& row) {
  const size_t size = row.input_ids.size(), second = is_pair ? 1 + size / 3 : size;
  const auto mark = [&](size_t position) { row.labels[position] = row.input_ids[position]; };
  if (model.tells_tokens()) {
    for (size_t i = 0; i < size; i += 1 + i % 2) mark(i);
    return;
  }
  mark(model.is_encoder ? 0 : second - 1);
  if (!is_pair) return;
  mark(model.is_encoder ? second : size - 1);
  row.type_ids.assign(size, 0);
  std::fill(row.type_ids.begin() + static_cast<int64_t>(second), row.type_ids.end(), 1);
}

// Returns rows of 2 to 12 tokens with targets, some of two types. With `are_pairs`, each is two texts.
data::RowSet rows_of(const models::ModelConfig& model, bool are_pairs) {
  const Classification& classes = *model.classification;
  const auto store = std::make_shared<data::RowStore>();
  store->set_pairs(are_pairs);
  data::RowSet rows{store, {}};
  for (int64_t number = 0; number < kRows; ++number) {
    const CounterRng rng(4, stream_of("rows"), static_cast<uint64_t>(number));
    data::Row row;
    row.input_ids.resize((are_pairs ? 3 : 2) + rng.below(0, 11));
    for (size_t i = 0; i < row.input_ids.size(); ++i)
      row.input_ids[i] = static_cast<int32_t>(3 + rng.below(1 + i, kVocabulary - 3));
    row.labels.assign(row.input_ids.size(), static_cast<int32_t>(kIgnoreLabel));
    mark_read(model, are_pairs, row);
    if (model.model_type == "bert" && number % 2 == 0 && !are_pairs) {
      row.type_ids.assign(row.input_ids.size(), 0);
      row.type_ids.back() = 1;
    }
    for (int64_t i = 0; i < classes.target_width() * std::max<int64_t>(1, data::count_trained(row.labels) +
                                                                              (row.labels[0] >= 0 ? 1 : 0));
         ++i) {
      const uint64_t drawn = rng.below(100 + static_cast<uint64_t>(i), 60);
      row.targets.push_back(classes.problem == ProblemType::Regression ? static_cast<float>(drawn) / 30.0F
                            : classes.problem == ProblemType::MultiLabel
                                ? static_cast<float>(drawn % 2)
                                : static_cast<float>(drawn % static_cast<uint64_t>(classes.num_labels())));
    }
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
  const data::RowSet rows = rows_of(model.model->config(), recipe.task == config::Task::RewardModel);
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
  const char* task = "classification";
};

class ClassifierLayouts : public ::testing::TestWithParam<Layout> {};

TEST_P(ClassifierLayouts, EqualOneProcess) {
  const auto world = testing::world();
  const Layout& layout = GetParam();
  if (world->size() > layout.most_ranks) return;
  const auto recipe_with = [&](int64_t accumulation) {
    return config::parse_recipe(
        "base_model: " + testing::reference_data("classifiers/") + layout.model + "\ntask: " + layout.task +
            "\ndatasets:\n  - path: none.jsonl\nlearning_rate: 0.01\nmax_steps: 3\n"
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
  ASSERT_EQ(got.evaluated.metrics.size(), want.evaluated.metrics.size());
  EXPECT_GE(want.evaluated.metrics.size(), 2U);
  for (size_t i = 0; i < want.evaluated.metrics.size(); ++i) {
    const auto& [name, value] = want.evaluated.metrics[i];
    EXPECT_NEAR(got.evaluated.metrics[i].second, value, 1e-9) << name;
  }
}

constexpr const char *kTokens = "token_classification", *kPairs = "reward_model";
constexpr const char* kLora =
    "adapter: lora\nlora_r: 2\nlora_alpha: 4\nlora_target_linear: true\nlora_dropout: 0.2\n";

INSTANTIATE_TEST_SUITE_P(
    Layouts, ClassifierLayouts,
    ::testing::Values(
        Layout{"shard", "bert"}, Layout{"packed", "bert_multi", nullptr, "sample_packing: true\n"},
        Layout{"ddp", "bert_number", nullptr, "zero_stage: 0\n"},
        Layout{"tp", "bert", &config::Recipe::tensor_parallel_size},
        Layout{"tp_of_lora", "bert", &config::Recipe::tensor_parallel_size, kLora},
        Layout{"tp_of_modernbert", "modernbert", &config::Recipe::tensor_parallel_size,
               "model_config: {attention_dropout: 0.2, mlp_dropout: 0.2}\n"},
        Layout{"cp", "bert", &config::Recipe::context_parallel_size},
        Layout{"cp_of_windows", "modernbert", &config::Recipe::context_parallel_size,
               "model_config: {attention_dropout: 0.2, mlp_dropout: 0.2}\n"},
        Layout{"cp_of_a_decoder", "llama_score", &config::Recipe::context_parallel_size},
        Layout{"pp", "roberta", &config::Recipe::pipeline_parallel_size, "", 2},
        Layout{"lora", "distilbert", nullptr, kLora},
        Layout{"lora_of_a_nested_head", "roberta", nullptr, kLora}, Layout{"decoder", "gpt2_score"},
        Layout{"tp_of_a_decoder", "gpt2_score", &config::Recipe::tensor_parallel_size},
        Layout{"recomputed", "roberta", nullptr, "gradient_checkpointing: true\n"},
        Layout{"tokens", "roberta_tokens", nullptr, "sample_packing: true\n", 3, kTokens},
        Layout{"tp_of_tokens", "modernbert_tokens", &config::Recipe::tensor_parallel_size, "", 3, kTokens},
        Layout{"cp_of_tokens", "bert_tokens", &config::Recipe::context_parallel_size, "", 3, kTokens},
        Layout{"cp_of_tagged_lora", "llama_tokens", &config::Recipe::context_parallel_size, kLora, 3,
               kTokens},
        Layout{"pp_of_tokens", "distilbert_tokens", &config::Recipe::pipeline_parallel_size, "", 2, kTokens},
        Layout{"pairs", "bert_number", nullptr, kLora, 3, kPairs},
        Layout{"tp_of_pairs", "bert_number", &config::Recipe::tensor_parallel_size, "", 3, kPairs},
        Layout{"cp_of_pairs", "reward_training", &config::Recipe::context_parallel_size,
               "sample_packing: true\n", 3, kPairs},
        Layout{"pp_of_pairs", "reward_training", &config::Recipe::pipeline_parallel_size, "", 2, kPairs}),
    [](const auto& info) { return info.param.what; });

// The first losses tell which dropouts act: those of the hidden states, of attention, of MLPs, and of what
// the classifier reads.
TEST(ClassifierDropout, IsThatOfTheConfig) {
  const auto first_loss = [](const std::string& model, const std::string& values, const char* task) {
    return run(config::parse_recipe("base_model: " + testing::reference_data("classifiers/") + model +
                                        "\ntask: " + task +
                                        "\ndatasets:\n  - path: none.jsonl\n"
                                        "learning_rate: 0.01\nmax_steps: 3\ndtype: float64\n"
                                        "sequence_len: 24\nmicro_batch_size: 4\nmodel_config: {" +
                                        values + "}\n",
                                    "recipe.yaml"),
               comm::Communicator::single())
        .losses[0];
  };
  const struct {
    const char* model;
    std::vector<std::string> values;  // the first names no dropout
    const char* task = "classification";
  } cases[] = {
      {"bert",
       {"hidden_dropout_prob: 0", "hidden_dropout_prob: 0.3",
        "hidden_dropout_prob: 0, classifier_dropout: 0.3",
        "hidden_dropout_prob: 0, attention_probs_dropout_prob: 0"}},
      {"roberta", {"hidden_dropout_prob: 0", "hidden_dropout_prob: 0, classifier_dropout: 0.3"}},
      {"distilbert",
       {"dropout: 0, seq_classif_dropout: 0", "dropout: 0.3, seq_classif_dropout: 0",
        "dropout: 0, seq_classif_dropout: 0.3", "dropout: 0, seq_classif_dropout: 0, attention_dropout: 0"}},
      {"modernbert",
       {"embedding_dropout: 0", "embedding_dropout: 0.3", "classifier_dropout: 0.3", "attention_dropout: 0.3",
        "mlp_dropout: 0.3"}},
      {"gpt2_score",
       {"resid_pdrop: 0, embd_pdrop: 0", "resid_pdrop: 0.3, embd_pdrop: 0", "resid_pdrop: 0, embd_pdrop: 0.3",
        "resid_pdrop: 0, embd_pdrop: 0, attn_pdrop: 0"}},
      {"llama_tokens",
       {"classifier_dropout: 0", "classifier_dropout: 0.3", "classifier_dropout: 0, attention_dropout: 0.3"},
       kTokens}};
  for (const auto& one : cases) {
    std::vector<double> losses;
    for (const std::string& values : one.values) losses.push_back(first_loss(one.model, values, one.task));
    for (size_t i = 0; i < losses.size(); ++i) {
      for (size_t j = 0; j < i; ++j)
        EXPECT_GT(std::abs(losses[i] - losses[j]), 1e-6) << one.model << ": " << one.values[i];
    }
  }
}

// A run from texts to the saved folder, against a plain loop of Transformers in float64
// (tests/reference/make_classifier_training_reference.py and make_head_training_reference.py).
class ClassifierRun : public ::testing::Test {
 protected:
  config::Recipe recipe_with(const std::string& more, const std::string& task = "classification") {
    return config::parse_recipe(
        "base_model: " + data_ + "\ntask: " + task + "\ndatasets:\n  - path: " + data_ +
            "train.jsonl\ntest_datasets:\n  - path: " + data_ + "eval.jsonl\nlearning_rate: " +
            expected_["rate"].dump() + "\nmax_steps: " + std::to_string(expected_["losses"].size()) +
            "\nsequence_len: " + expected_["max_length"].dump() +
            (task == kPairs ? "" : "\nexcess_length_strategy: truncate") +
            "\nshuffle_merged_datasets: false\nlr_scheduler: "
            "constant\nwarmup_steps: 0\ndtype: float64\n"
            "eval_strategy: steps\neval_steps: " +
            std::to_string(expected_["losses"].size()) + "\noutput_dir: " + folder_ / "out" + "\n" + more,
        "recipe.yaml");
  }

  // Trains on the rows of a folder below tests/reference/data/classifiers, and compares what comes of it.
  void expect_equal(const std::string& name, const std::string& task, const std::string& more) {
    data_ = testing::reference_data("classifiers/") + name + "/";
    expected_ = nlohmann::json::parse(std::ifstream(data_ + "expected.json"));
    const int64_t batch = expected_["batch"];
    train(recipe_with(more + "\nmicro_batch_size: " + std::to_string(batch / world_->size()) + "\n", task),
          world_);
    if (!folder_.is_owner()) return;
    const auto steps = testing::metrics_with(folder_ / "out/metrics.jsonl", "loss");
    ASSERT_EQ(steps.size(), expected_["losses"].size());
    for (size_t i = 0; i < steps.size(); ++i) {
      const double want = expected_["losses"][i];
      EXPECT_NEAR(steps[i]["loss"].get<double>(), want, 1e-8 * want) << i;
    }
    const auto evaluations = testing::metrics_with(folder_ / "out/metrics.jsonl", "eval_loss");
    ASSERT_EQ(evaluations.size(), 1U);
    for (const auto& [metric, value] : expected_["metrics"].items())
      EXPECT_NEAR(evaluations[0]["eval_" + metric].get<double>(), value.get<double>(), 1e-7) << metric;
  }

  const std::shared_ptr<comm::Communicator> world_ = testing::world();
  const testing::SharedFolder folder_{world_};
  std::string data_ = testing::reference_data("classifiers/training/");
  nlohmann::json expected_ = nlohmann::json::parse(std::ifstream(data_ + "expected.json"));
};

TEST_F(ClassifierRun, EqualsTransformers) {
  expect_equal("training", "classification", "");
  if (!folder_.is_owner()) return;
  const auto config = models::read_model_config(folder_ / "out");
  EXPECT_EQ(config->classification->labels, default_labels(2));
  EXPECT_EQ(config->classification->problem, ProblemType::SingleLabel);
}

TEST_F(ClassifierRun, TagsEqualTransformers) {
  expect_equal("token_training", kTokens, "");
  if (!folder_.is_owner()) return;
  const auto config = models::read_model_config(folder_ / "out");
  EXPECT_TRUE(config->tells_tokens());
  EXPECT_EQ(config->classification->labels[1], "B-PER");
}

TEST_F(ClassifierRun, RewardsEqualTransformers) {
  expect_equal("reward_training", kPairs, "center_rewards_coefficient: 0.05");
  if (!folder_.is_owner()) return;
  const auto config = models::read_model_config(folder_ / "out");
  EXPECT_EQ(config->classification->num_labels(), 1);
}

// The result of an adapter tells the labels, and holds the head of the classifier.
TEST_F(ClassifierRun, AnAdapterHoldsTheHead) {
  config::Recipe recipe =
      recipe_with(std::string("micro_batch_size: 2\nlabel_names: [other, same]\n") + kLora);
  recipe.max_steps = 2;
  train(recipe, world_);
  world_->barrier();
  // A run that goes on from it has its labels.
  config::Recipe again = recipe;
  again.label_names.clear();
  again.lora_model_dir = folder_ / "out";
  again.output_dir = folder_ / "again";
  again.key_places.clear();
  train(again, world_);
  if (!folder_.is_owner()) return;
  EXPECT_EQ(models::read_model_config(folder_ / "again")->classification->labels,
            (std::vector<std::string>{"other", "same"}));
  const auto adapter = nlohmann::json::parse(std::ifstream(folder_ / "out/adapter_config.json"));
  EXPECT_EQ(adapter["task_type"], "SEQ_CLS");
  EXPECT_EQ(adapter["modules_to_save"], nlohmann::json({"classifier"}));
  const auto model = generation::load_for_inference(data_, folder_ / "out", at::TensorOptions(at::kDouble));
  EXPECT_EQ(model->config().classification->labels, (std::vector<std::string>{"other", "same"}));
}

TEST_F(ClassifierRun, ADecoderGetsAHead) {
  config::Recipe recipe = recipe_with("micro_batch_size: 2\n");
  recipe.max_steps = 2;
  recipe.base_model = folder_ / "model";
  if (folder_.is_owner()) {
    testing::TinyModel tiny;
    tiny.vocab = 259;
    testing::write_tiny_model(folder_ / "model", tiny);
  }
  world_->barrier();
  train(recipe, world_);
  if (!folder_.is_owner()) return;
  const models::BaseModel made = models::BaseModel::open(folder_ / "out");
  EXPECT_EQ(made.config().classification->labels, default_labels(2)) << "as the data show";
  models::check_tensors(*models::build_model(made.config(), at::kFloat), *made.tensors());
}

TEST_F(ClassifierRun, TasksAndModelsThatDoNotFitAreRefused) {
  config::Recipe recipe = recipe_with("");
  recipe.task = config::Task::CausalLm;
  EXPECT_THROW(train(recipe, world_), Error) << "a classifier as a language model";
  EXPECT_THROW(recipe_with("streaming: true\n"), Error);
  try {
    train(recipe_with("num_labels: 5\n"), world_);
    ADD_FAILURE() << "a classifier of two classes became one of five";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-CONFIG-TASK");
    EXPECT_NE(std::string(error.what()).find("got 5 labels, need 2"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tessera::train
