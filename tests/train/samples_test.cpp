// Tests that a model in training makes of prompts, those of samples and of tasks, what it would make of them
// when it is saved and loaded, under any layout, and that the training does not notice.
#include "tessera/train/run/samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/generation/answer_requests.h"
#include "tessera/generation/generate.h"
#include "tessera/generation/load_for_inference.h"
#include "tessera/scoring/results.h"
#include "tessera/scoring/task_files.h"
#include "tessera/train/run/trainer.h"
#include "tessera/train/setup/recipe_tokenizer.h"
#include "tessera/train/setup/recipe_values.h"

#include "tests/testing/extent.h"
#include "tests/testing/mpi_world.h"
#include "tests/testing/shared_random.h"
#include "tests/testing/tiny_model.h"
#include "tests/train/train_testing.h"

namespace tessera::train {
namespace {

using ::testing::ElementsAre;
using Lines = std::vector<nlohmann::json>;

constexpr const char* kKeys = "eval_table_size: 3\neval_max_new_tokens: 9\n";
// The answers are drawn, so that they are of all kinds, and there are fewer or more than a rank's turn.
constexpr const char* kTask = R"(task: echo
dataset_path: json
dataset_kwargs: {data_files: {test: echo.jsonl}}
output_type: generate_until
test_split: test
doc_to_text: "Say {{number}}"
doc_to_target: "It is {{number}}."
metric_list: [{metric: chrf, aggregation: chrf, higher_is_better: true}]
generation_kwargs: {until: ["zz"], max_gen_toks: 21, do_sample: true, temperature: 1.0}
metadata: {version: 1.0}
)";

class SamplesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (folder_.is_owner()) {
      testing::write_tiny_model(folder_ / "model", {});
      testing::write_tiny_model(folder_ / "experts", {.family = "mixtral"});
      testing::write_tiny_model(folder_ / "gpt2", {.family = "gpt2"});
      testing::write_tiny_model(folder_ / "deep", {.layers = 8});
      testing::write_text(folder_ / "echo.yaml", kTask);
      testing::write_text(folder_ / "echo.jsonl",
                          "{\"number\":100}\n{\"number\":7}\n{\"number\":2026}\n{\"number\":55}\n");
      std::string rows, texts;
      for (int i = 0; i < 12; ++i) {
        const std::string number = std::to_string(100 + i);
        rows += "{\"instruction\":\"Say " + number + "\",\"output\":\"It is " + number + ".\"}\n";
        texts += "{\"text\":\"0123456789" + number + "\"}\n";
      }
      testing::write_text(folder_ / "rows.jsonl", rows);
      testing::write_text(folder_ / "texts.jsonl", texts);
    }
    world_->barrier();
  }

  config::Recipe recipe_of(const std::string& out, const std::string& more) const {
    const std::string base =
        more.find("base_model") == std::string::npos ? "base_model: " + folder_ / "model" + "\n" : "";
    return config::parse_recipe(
        base + "output_dir: " + folder_ / out + "\ndatasets: [{path: " + folder_ / "rows.jsonl" +
            ", type: alpaca}]\nlearning_rate: 0.02\neval_steps: 2\n" +
            (more.find("max_steps") == std::string::npos ? "max_steps: 4\n" : "") +
            (more.find("test_datasets") == std::string::npos ? "val_set_size: 4\n" : "") + more,
        "recipe.yaml");
  }
  void run(const std::string& out, const std::string& more) const { train(recipe_of(out, more), world_); }
  std::string text_of(const std::string& name) const { return io::read_file(folder_ / name, 1 << 26); }
  Lines samples_of(const std::string& out) const {
    return testing::metrics_with(folder_ / (out + "/samples.jsonl"), "step");
  }
  std::string task_key() const { return "eval_tasks: [" + folder_ / "echo.yaml" + "]\n"; }
  // Returns the scores of the task in a run's evaluations.
  std::vector<double> scores_of(const std::string& out) const {
    std::vector<double> scores;
    for (const auto& line : testing::metrics_with(folder_ / (out + "/metrics.jsonl"), "eval/echo/chrf"))
      scores.push_back(line.at("eval/echo/chrf"));
    return scores;
  }
  // Returns the score that tessera evaluate gives a model.
  double score_of(models::CausalLM& model, const text::Tokenizer& tokenizer) const {
    const scoring::Task task(scoring::select_tasks({folder_ / "echo.yaml"}).tasks.at(0), {});
    const scoring::RequestEncoder encoder(tokenizer, generation::scored_length(model));
    const auto responses = generation::answer_requests(
        task, model, tokenizer, encoder, {comm::Communicator::single(), {}},
        {.stop_ids = generation::stop_ids(model, tokenizer), .seed = scoring::TaskOptions().fewshot_seed});
    return scoring::result_of(task, task.score(responses, false), 0).scores.at(0).value;
  }
  // Returns the losses and norms of a run's steps and evaluations.
  std::string numbers_of(const std::string& out) const {
    std::string text;
    for (const auto& line : testing::metrics_with(folder_ / (out + "/metrics.jsonl"), "step")) {
      for (const char* key : {"loss", "grad_norm", "eval_loss"})
        if (line.contains(key)) text += line.at(key).dump() + " ";
    }
    return text;
  }

  std::shared_ptr<comm::Communicator> world_ = testing::world();
  testing::SharedFolder folder_{world_};
};

TEST_F(SamplesTest, AreWhatTheSavedModelMakesAndChangeNothingOfTheTraining) {
  struct Row {
    const char *what, *keys, *type;
  };
  const std::vector<Row> rows = {
      {"whole layers, an average to evaluate",
       "zero_stage: 0\noptimizer: schedule_free_adamw\nlr_scheduler: constant\n", "float32"},
      {"gathered layers, dropout and noise",
       "zero_stage: 3\ngradient_checkpointing: true\nadapter: lora\nlora_target_linear: true\n"
       "lora_dropout: 0.3\nneftune_noise_alpha: 5\n",
       "float32"},
      {"bfloat16", "zero_stage: 2\ndtype: bfloat16\nsave_dtype: float32\n", "bfloat16"},
      {"experts", "expert_parallel_size: $ranks\nbase_model: $folder/experts\n", "float32"},
      {"cut layers", "tensor_parallel_size: $ranks\nbase_model: $folder/gpt2\n", "float32"},
      {"cut layers, tokens on their way",
       "tensor_parallel_size: $ranks\nasync_tensor_parallel: true\nbase_model: $folder/gpt2\nadapter: lora\n"
       "lora_target_linear: true\n",
       "float32"},
      {"parts of texts", "context_parallel_size: $ranks\nzero_stage: 3\n", "float32"},
      {"stages", "pipeline_parallel_size: $ranks\nbase_model: $folder/deep\n", "float32"},
      {"stages in turns",
       "pipeline_parallel_size: $ranks\npipeline_schedule: interleaved\nbase_model: $folder/deep\n",
       "float32"},
  };
  testing::Random random = testing::shared_random();
  int number = 0;
  for (const auto& [what, given, type] : testing::some_of(rows, 2, random)) {
    SCOPED_TRACE(what);
    std::string keys = given;
    for (const auto& [name, value] :
         {std::pair<std::string, std::string>{"$ranks", std::to_string(world_->size())},
          {"$folder/", folder_ / ""}}) {
      if (const size_t at = keys.find(name); at != std::string::npos) keys.replace(at, name.size(), value);
    }
    const std::string plain = "plain" + std::to_string(++number),
                      sampled = "sampled" + std::to_string(number);
    run(plain, keys);
    run(sampled, keys + kKeys + task_key());
    if (!folder_.is_owner()) continue;
    EXPECT_FALSE(io::exists(folder_ / (plain + "/samples.jsonl")));
    EXPECT_EQ(numbers_of(sampled), numbers_of(plain));
    const bool is_adapter = keys.find("lora") != std::string::npos;
    const std::string weights = is_adapter ? "/adapter_model.safetensors" : "/model.safetensors";
    EXPECT_TRUE(text_of(sampled + weights) == text_of(plain + weights)) << "other weights";
    const Lines lines = samples_of(sampled);
    ASSERT_EQ(lines.size(), 6U);
    std::string base = "model";
    for (const char* other : {"experts", "gpt2", "deep"})
      if (keys.find(other) != std::string::npos) base = other;
    const auto model = generation::load_for_inference(
        folder_ / (is_adapter ? base : sampled), is_adapter ? folder_ / sampled : "",
        at::TensorOptions(type == std::string("bfloat16") ? at::kBFloat16 : at::kFloat));
    const text::Tokenizer tokenizer = text::Tokenizer::from_folder(folder_ / base);
    for (size_t i = 3; i < 6; ++i) {  // the model has gone on behind the first evaluation
      const std::vector<int32_t> prompt = tokenizer.encode(lines[i].at("prompt").get<std::string>());
      const auto made = generation::generate(*model, {prompt.begin(), prompt.end()},
                                             {.max_new_tokens = 9, .stop_ids = {258}});
      const std::vector<int32_t> ids(made.token_ids.begin(), made.token_ids.end());
      EXPECT_EQ(lines[i].at("generated"), tokenizer.decode(ids, true)) << lines[i];
      EXPECT_EQ(lines[i].at("step"), 4);
    }
    const std::vector<double> scores = scores_of(sampled);
    ASSERT_EQ(scores.size(), 2U);
    EXPECT_EQ(scores[1], score_of(*model, tokenizer));
    // Three steps of an adapter need not change an answer.
    EXPECT_TRUE(is_adapter || scores[1] != scores[0]);
  }
  world_->barrier();
}

// Several ranks make the lines of one process, and a run that goes on from a checkpoint those of a whole one.
TEST_F(SamplesTest, NeitherRanksNorRestartsChangeTheLines) {
  const std::string keys = kKeys + task_key() + "dtype: float64\nsave_steps: 3\nmax_steps: 4\n";
  run("whole", keys);
  run("resumed", keys + "resume_from_checkpoint: " + folder_ / "whole/checkpoint-3" + "\n");
  if (!folder_.is_owner()) return;
  EXPECT_EQ(samples_of("whole").size(), 6U);
  EXPECT_EQ(text_of("resumed/samples.jsonl"), text_of("whole/samples.jsonl"));
  EXPECT_EQ(scores_of("whole").size(), 2U);
  EXPECT_EQ(scores_of("resumed"), scores_of("whole"));
  train(recipe_of("single", keys + "gradient_accumulation_steps: " + std::to_string(world_->size()) + "\n"),
        comm::Communicator::single());
  EXPECT_EQ(text_of("single/samples.jsonl"), text_of("whole/samples.jsonl"));
  EXPECT_EQ(scores_of("single"), scores_of("whole"));
}

TEST_F(SamplesTest, TakesRowsOfEachDatasetInTurnAndCutsThem) {
  if (world_->size() > 1) return;  // ranks do not matter here
  const std::string data = "test_datasets: [{path: " + folder_ / "rows.jsonl" +
                           ", type: alpaca}, {path: " + folder_ / "texts.jsonl" + ", type: completion}]\n";
  run("out", data + "eval_table_size: 3\neval_max_new_tokens: 246\nmax_steps: 1\n");
  if (!folder_.is_owner()) return;
  std::vector<std::string> names, prompts, expected;
  for (const auto& line : samples_of("out")) {
    names.push_back(line.at("dataset"));
    prompts.push_back(line.at("prompt"));
    expected.push_back(line.at("expected"));
  }
  EXPECT_THAT(names, ElementsAre("rows-2", "texts", "rows-2"));
  // The model takes 256 tokens. A text is trained from its beginning on.
  EXPECT_THAT(prompts, ElementsAre("Response:\n", "0123456", "Response:\n"));
  EXPECT_THAT(expected, ElementsAre("It is 100.", "789100", "It is 101."));
}

TEST_F(SamplesTest, LogitsThatAreNotFiniteEndATextOnAllRanks) {
  const config::Recipe recipe = recipe_of("none", kKeys);
  const parallel::DeviceMesh mesh(world_, parallel_dims(recipe, world_->size()));
  TrainedModel trained = set_up_model(recipe, mesh);
  config::Problems problems;
  const auto tokenizer = load_recipe_tokenizer(recipe, problems);
  const auto store = std::make_shared<data::RowStore>();
  store->append(std::vector<int32_t>{65, 66, 67, 68}, std::vector<int32_t>{-100, -100, 67, 68});
  const Samples samples(recipe, *trained.model, tokenizer, {store, {0}});
  EXPECT_EQ(samples.describe(), "1 prompt, by up to 9 tokens");
  const auto make = [&] { return samples.make(trained, *world_, [](int64_t) { return true; }); };
  EXPECT_EQ(make().value().size(), world_->rank() == 0 ? 1U : 0U);
  {
    const at::NoGradGuard no_grad;
    for (const auto& parameter : trained.sharded->parameters()) parameter.tile.fill_(NAN);
  }
  const auto made = make().value();
  if (world_->rank() == 0) {
    EXPECT_EQ(made.at(0).finish, "not finite");
  }
  EXPECT_TRUE(trained.model->is_training());
  // A request to stop ends it on all ranks alike.
  EXPECT_FALSE(samples.make(trained, *world_, [](int64_t) { return false; }).has_value());
  EXPECT_THROW(Samples(recipe, *trained.model, std::nullopt, {store, {0}}), Error);
}

}  // namespace
}  // namespace tessera::train
