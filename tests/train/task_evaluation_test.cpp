// Tests that the scores of tasks in training are those of lm-evaluation-harness and of
// generation::score_tokens(), under any layout, and that scoring changes nothing of the training.
#include "tessera/train/run/task_evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/generation/load_for_inference.h"
#include "tessera/train/setup/recipe_tokenizer.h"
#include "tessera/train/setup/recipe_values.h"
#include "tessera/train/step/score_requests.h"

#include "tests/scoring/task_reference.h"
#include "tests/testing/mpi_world.h"
#include "tests/train/training_testing.h"

namespace tessera::train {
namespace {

using scoring::TokenRequest;

// Returns requests of random lengths, then one for each token behind the same text: just one is the
// likeliest.
std::vector<TokenRequest> requests_of(int64_t vocab) {
  const CounterRng rng(5, stream_of("requests"), 0);
  uint64_t drawn = 0;
  const auto ids = [&](int64_t count) {
    std::vector<int64_t> ids;
    while (std::ssize(ids) < count)
      ids.push_back(static_cast<int64_t>(rng.below(drawn++, static_cast<uint64_t>(vocab))));
    return ids;
  };
  std::vector<TokenRequest> requests;
  for (int64_t i = 0; i < 7; ++i) requests.push_back({ids(2 + 5 * i), 1 + i});
  const std::vector<int64_t> text = ids(5);
  for (int64_t id = 0; id < vocab; ++id) {
    requests.push_back({text, 1});
    requests.back().ids.push_back(id);
  }
  return requests;
}

struct Cut {
  const char* what;
  int64_t config::Recipe::*axis;  // the axis along which all ranks lie; null for dp_shard
  int64_t max_tokens;             // of a micro-batch
};

class ScoreRequestsTest : public ::testing::TestWithParam<Cut> {
 protected:
  void SetUp() override {
    if (folder_.is_owner()) testing::write_tiny_model(folder_ / "model", {});
    world_->barrier();
  }
  std::shared_ptr<comm::Communicator> world_ = testing::world();
  testing::SharedFolder folder_{world_};
};

TEST_P(ScoreRequestsTest, GivesWhatScoreTokensGives) {
  const Cut& cut = GetParam();
  // The model has too few heads and layers for more ranks along the other axes.
  const bool takes_three = cut.axis == nullptr || cut.axis == &config::Recipe::context_parallel_size;
  if (world_->size() > 2 && !takes_three) return;
  config::Recipe recipe;
  recipe.base_model = folder_ / "model";
  recipe.dtype = config::ComputeType::Float64;
  if (cut.axis != nullptr) recipe.*cut.axis = world_->size();
  const parallel::DeviceMesh mesh(world_, parallel_dims(recipe, world_->size()));
  TrainedModel trained = set_up_model(recipe, mesh);
  const auto requests = requests_of(trained.model->config().vocab_size);
  std::vector<int64_t> done;
  const auto scores = score_requests(trained, mesh, requests, cut.max_tokens, [&](int64_t count) {
    done.push_back(count);
    return true;
  });
  EXPECT_TRUE(trained.model->is_training());
  EXPECT_TRUE(std::ranges::is_sorted(done));
  EXPECT_EQ(done.back(), std::ssize(requests));
  ASSERT_TRUE(scores.has_value());
  const auto model = generation::load_for_inference(folder_ / "model", "", at::TensorOptions(at::kDouble));
  const auto want = generation::score_tokens(*model, requests);
  int64_t num_greedy = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR((*scores)[i].log_prob, want[i].log_prob, 1e-10 * std::abs(want[i].log_prob)) << i;
    EXPECT_EQ((*scores)[i].is_greedy, want[i].is_greedy) << i;
    num_greedy += want[i].is_greedy ? 1 : 0;
  }
  EXPECT_GE(num_greedy, 1);
  // A request to stop ends it on all ranks alike.
  EXPECT_FALSE(score_requests(trained, mesh, requests, 1, [](int64_t) { return false; }).has_value());
}

INSTANTIATE_TEST_SUITE_P(Layouts, ScoreRequestsTest,
                         ::testing::Values(Cut{"shard", nullptr, 16}, Cut{"long", nullptr, 4096},
                                           Cut{"cp", &config::Recipe::context_parallel_size, 40},
                                           Cut{"tp", &config::Recipe::tensor_parallel_size, 40},
                                           Cut{"pp", &config::Recipe::pipeline_parallel_size, 40}),
                         [](const auto& info) { return info.param.what; });

config::Recipe task_recipe(std::vector<std::string> names) {
  config::Recipe recipe;
  recipe.base_model = scoring::task_folder() + "model";
  recipe.dtype = config::ComputeType::Float32;
  recipe.sequence_len = 64;
  recipe.label_smoothing_factor = 0.25;  // of the loss that trains alone
  recipe.z_loss_coef = 0.5;
  for (const std::string& name : names) recipe.eval_tasks.push_back(scoring::task_folder() + name + ".yaml");
  return recipe;
}

std::optional<text::Tokenizer> tokenizer_of(const config::Recipe& recipe) {
  config::Problems problems;
  return load_recipe_tokenizer(recipe, problems);
}

TEST(TaskEvaluationTest, ScoresAreThoseOfTheHarness) {
  const auto world = testing::world();
  const config::Recipe recipe = task_recipe({"all", "endings", "pages", "sums", "sums_any"});
  const parallel::DeviceMesh mesh(world, parallel_dims(recipe, world->size()));
  TrainedModel trained = set_up_model(recipe, mesh);
  const auto tokenizer = tokenizer_of(recipe);
  const TaskEvaluation tasks(recipe, *trained.model, tokenizer, *world);
  EXPECT_THAT(tasks.describe(), ::testing::StartsWith("9 tasks, "));
  const auto metrics = tasks.evaluate(trained, mesh, [](int64_t) { return true; });
  ASSERT_TRUE(metrics.has_value());
  const scoring::Json results = scoring::read_reference("reference.json")["results"];
  std::vector<std::string> names;
  for (size_t i = 0; i < metrics->size(); ++i) {
    const TaskMetric& metric = (*metrics)[i];
    names.push_back(metric.name);
    EXPECT_EQ(metric.name, tasks.expected()[i].name);
    const size_t slash = metric.name.find('/');
    const std::string named = metric.name.substr(slash + 1),
                      filtered = named + (named.find(',') == std::string::npos ? ",none" : "");
    const double want = results[metric.name.substr(0, slash)][filtered].get<double>();
    EXPECT_NEAR(metric.value, want, 1e-4 * std::max(1.0, std::abs(want))) << metric.name;
    EXPECT_EQ(metric.higher_is_better, !metric.name.ends_with("perplexity") && !metric.name.ends_with("byte"))
        << metric.name;
  }
  // The scores of the group stand for those of its tasks.
  EXPECT_THAT(names,
              ::testing::ElementsAre("all/acc", "all/acc_norm", "endings/perplexity", "endings/acc",
                                     "pages/word_perplexity", "pages/byte_perplexity", "pages/bits_per_byte",
                                     "sums/exact_match,strict-match", "sums/exact_match,flexible-extract",
                                     "sums_any/exact_match,mapped"));
  EXPECT_TRUE(trained.model->is_training());
}

TEST(TaskEvaluationTest, RefusesTasksBeforeTheFirstStep) {
  const auto world = testing::world();
  const config::Recipe recipe = task_recipe({"quiz", "sums"});
  const parallel::DeviceMesh mesh(world, parallel_dims(recipe, world->size()));
  const TrainedModel trained = set_up_model(recipe, mesh);
  const auto tokenizer = tokenizer_of(recipe);
  const auto message = [&](const std::optional<text::Tokenizer>& given) -> std::string {
    try {
      TaskEvaluation(recipe, *trained.model, given, *world);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(tokenizer), "");
  EXPECT_THAT(message(std::nullopt), ::testing::HasSubstr("the model has no tokenizer"));
}

TEST(TaskEvaluationTest, AnswersEndWhereThisIsAskedForAndWhereLogitsAreNotFinite) {
  const auto world = testing::world();
  const config::Recipe recipe = task_recipe({"sums"});
  const parallel::DeviceMesh mesh(world, parallel_dims(recipe, world->size()));
  TrainedModel trained = set_up_model(recipe, mesh);
  const auto tokenizer = tokenizer_of(recipe);
  const TaskEvaluation tasks(recipe, *trained.model, tokenizer, *world);
  int64_t asked = 0;
  EXPECT_FALSE(tasks.evaluate(trained, mesh, [&](int64_t) { return ++asked < 3; }).has_value());
  EXPECT_EQ(asked, 3);
  EXPECT_TRUE(trained.model->is_training());
  const at::NoGradGuard no_grad;
  for (const auto& parameter : trained.sharded->parameters()) parameter.tile.fill_(NAN);
  try {
    tasks.evaluate(trained, mesh, [](int64_t) { return true; });
    ADD_FAILURE() << "the logits are finite";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-NUMERICS-EVAL-TASKS");
    EXPECT_THAT(error.what(), ::testing::HasSubstr("task 'sums'"));
  }
}

// A run with dropout, noise and other terms of the loss makes the same steps, to the last bit, with and
// without tasks between them, and its memory comes back.
TEST(TaskEvaluationTest, ScoringChangesNothingOfTheTraining) {
  const auto world = testing::world();
  config::Recipe recipe = task_recipe({"quiz", "sums"});
  recipe.learning_rate = 0.03;
  recipe.max_steps = 4;
  recipe.neftune_noise_alpha = 5.0;
  recipe.adapter = config::AdapterKind::Lora;
  recipe.lora_dropout = 0.25;
  recipe.lora_target_modules = {"q_proj", "down_proj"};
  testing::TinyTraining plain(recipe, world), scored(recipe, world);
  const auto tokenizer = tokenizer_of(recipe);
  const TaskEvaluation tasks(recipe, *scored.training.trained().model, tokenizer, *world);
  std::vector<TaskMetric> first;
  for (int64_t step = 1; step <= 4; ++step) {
    EXPECT_EQ(plain.run_to(step), scored.run_to(step)) << step;
    const auto metrics = tasks.evaluate(scored.training.trained(), scored.mesh, [](int64_t) { return true; });
    ASSERT_TRUE(metrics.has_value());
    if (step == 1) first = *metrics;
  }
  const auto want = plain.values(), got = scored.values();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(at::equal(want[i], got[i])) << i;
  EXPECT_FALSE(first.empty());
}

}  // namespace
}  // namespace tessera::train
