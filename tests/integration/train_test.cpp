// Tests of `tessera train`: the files that a run writes, and that they load again.
#include <algorithm>
#include <cmath>
#include <fstream>

#include "tests/integration/fixture.h"
#include "tests/testing/paths.h"

namespace tessera::testing {
namespace {

using TrainTest = ProgramTest;

TEST_F(TrainTest, LeavesMetricsAndAModelFolder) {
  train_well();
  const auto metrics = read_metrics(out());
  ASSERT_EQ(metrics.size(), 4u);
  int64_t step = 0;
  for (const auto& line : metrics) {
    EXPECT_EQ(line.at("step").get<int64_t>(), ++step);
    EXPECT_TRUE(std::isfinite(line.at("loss").get<double>()));
    EXPECT_DOUBLE_EQ(line.at("lr").get<double>(), 1e-2);
    EXPECT_GT(line.at("grad_norm").get<double>(), 0.0);
    EXPECT_GT(line.at("tokens").get<int64_t>(), line.at("label_tokens").get<int64_t>());
    EXPECT_GT(line.at("label_tokens").get<int64_t>(), 0);
    EXPECT_GT(line.at("tokens_per_s").get<double>(), 0.0);
    EXPECT_GT(line.at("peak_rss").get<int64_t>(), 1 << 20);
    EXPECT_NEAR(line.at("epoch").get<double>(), static_cast<double>(step) / 12.0, 1e-9);
  }

  for (const char* file :
       {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "recipe.yaml"}) {
    EXPECT_TRUE(std::filesystem::exists(out(file))) << file;
  }
  EXPECT_FALSE(std::filesystem::is_empty(out("runs")));
  // The result has the same tensors as the model that it came from, with other values.
  const auto before = io::SafetensorsFile::open(here / "model/model.safetensors");
  const auto after = io::SafetensorsFile::open(out("model.safetensors"));
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  for (const io::TensorInfo& tensor : before.tensors()) {
    const io::TensorInfo* twin = after.find(tensor.name);
    ASSERT_NE(twin, nullptr) << tensor.name;
    EXPECT_EQ(twin->shape, tensor.shape) << tensor.name;
  }
  EXPECT_NE(logits(out()), logits(model()));
}

TEST_F(TrainTest, LossFallsOnTheSameRows) {
  train_well({"micro_batch_size=24"});
  const auto full = read_column(out(), "loss");
  train_well({"micro_batch_size=24", "adapter=lora", "lora_target_linear=true"});
  const auto lora = read_column(out(), "loss");
  for (size_t step = 1; step < 4; ++step) {
    EXPECT_LT(full[step], full[step - 1]);
    EXPECT_LT(lora[step], lora[step - 1]);
  }
}

TEST_F(TrainTest, ResultLoadsAgainAndTrainingGoesOn) {
  train_well({"micro_batch_size=24"});
  run_well({"generate", "--model", "out", "--max-new-tokens", "3", "Hi"});
  const auto first = read_column(out(), "loss");
  train_well({"base_model=out", "output_dir=more", "max_steps=1", "micro_batch_size=24"});
  EXPECT_LT(read_column(here / "more", "loss").at(0), first.back());
}

TEST_F(TrainTest, WrittenRecipeRepeatsTheRun) {
  train_well({"seed=7", "weight_decay=0.1"});
  run_well({"train", "out/recipe.yaml", "output_dir=again"});
  EXPECT_EQ(read_column(out(), "loss"), read_column(here / "again", "loss"));
  EXPECT_EQ(read_text(out("model.safetensors")), read_text(here / "again/model.safetensors"));
  // The recipe also works from another folder.
  std::filesystem::create_directory(here / "deep");
  RunOptions options;
  options.folder = here / "deep";
  const ProgramResult elsewhere = tessera_program({"train", out("recipe.yaml"), "output_dir=there"}, options);
  EXPECT_EQ(elsewhere.exit_code, 0) << elsewhere.told();
  EXPECT_EQ(read_column(out(), "loss"), read_column(here / "deep/there", "loss"));
}

TEST_F(TrainTest, TheLogTellsLessOrMore) {
  EXPECT_EQ(train_well({"--quiet"}).err, "");
  const Words lines = ProgramResult::lines(train_well({"--verbose"}).err);
  int64_t num_steps = 0;
  for (const std::string& line : lines) {
    EXPECT_EQ(line.find(" tessera: ") == 19 || line.find(" step ") == 19, true) << line;
    num_steps += line.find(" step ") == 19 ? 1 : 0;
  }
  EXPECT_EQ(num_steps, 4);
  EXPECT_EQ(train({"--quiet", "--verbose"}).exit_code, 2);
  expect_error(train({"--quiet", "learning_rate=x"}), 2, "E-CONFIG", {"learning_rate"});
}

TEST_F(TrainTest, TellsWhatAStepShouldTake) {
  const std::string foreseen = "expected: ", compared = "steps 2 to 5 of this run beside what was expected: ",
                    sent = "bytes that the first rank sends in a step: sharding ";
  const auto has = [](const ProgramResult& result, const std::string& text) {
    return result.err.find(text) != std::string::npos;
  };
  const ProgramResult one = train_well({"max_steps=5"});
  EXPECT_TRUE(has(one, foreseen) && has(one, compared)) << one.told();
  EXPECT_FALSE(has(one, sent)) << one.told();
  const ProgramResult two = train_well({"max_steps=5", "--nproc", "2"});
  EXPECT_TRUE(has(two, compared) && has(two, sent)) << two.told();
  // A cluster is one of the run's size.
  EXPECT_TRUE(has(train_well({"max_steps=1", "cluster=1xH100"}), foreseen));
  EXPECT_TRUE(
      has(train_well({"max_steps=1", "cluster=2xH100"}), "2xH100 has 2 devices, and this run 1 ranks"));
  expect_error(run({"train", "recipe.yaml", "cluster=2xnothing"}), 2, "E-CONFIG", {"2xnothing"});
}

TEST_F(TrainTest, OverridesWin) {
  train_well({"max_steps=2", "learning_rate=3e-3", "output_dir=elsewhere"});
  EXPECT_FALSE(std::filesystem::exists(out()));
  EXPECT_EQ(read_column(here / "elsewhere", "lr"), (std::vector<double>{3e-3, 3e-3}));
}

TEST_F(TrainTest, LoraLeavesAnAdapterThatContinues) {
  const Words lora = {"adapter=lora", "lora_target_linear=true", "lora_r=3", "micro_batch_size=24"};
  train_well(lora);
  EXPECT_TRUE(std::filesystem::exists(out("adapter_model.safetensors")));
  EXPECT_FALSE(std::filesystem::exists(out("model.safetensors")));
  const auto config = nlohmann::json::parse(read_text(out("adapter_config.json")));
  EXPECT_EQ(config.at("peft_type"), "LORA");
  EXPECT_EQ(config.at("r"), 3);
  const auto first = read_column(out(), "loss");
  Words more = lora;
  more.insert(more.end(), {"lora_model_dir=out", "output_dir=more", "max_steps=1"});
  train_well(more);
  EXPECT_LT(read_column(here / "more", "loss").at(0), first.back());
}

TEST_F(TrainTest, ChatRowsTrainOnAnswersAlone) {
  train_well({"datasets.0.path=chats.jsonl", "datasets.0.type=chat_template", "num_epochs=1", "max_steps=0",
              "micro_batch_size=12"});
  const auto metrics = read_metrics(out());
  ASSERT_EQ(metrics.size(), 1u);
  // 10 answers "A number: N." and 2 with one more digit, each with its end token.
  EXPECT_EQ(metrics[0].at("label_tokens").get<int64_t>(), 10 * 13 + 2 * 14);
}

TEST_F(TrainTest, PackingKeepsTheStepsLoss) {
  const Words same = {"max_steps=1", "sequence_len=512", "dtype=float64"};
  Words plain = same, packed = same;
  plain.insert(plain.end(), {"micro_batch_size=24", "output_dir=plain"});
  packed.insert(packed.end(), {"micro_batch_size=1", "sample_packing=true", "output_dir=packed"});
  train_well(plain);
  train_well(packed);
  const auto a = read_metrics(here / "plain").at(0), b = read_metrics(here / "packed").at(0);
  EXPECT_EQ(a.at("label_tokens"), b.at("label_tokens"));
  EXPECT_NEAR(a.at("loss").get<double>(), b.at("loss").get<double>(), 1e-9);
  EXPECT_NEAR(a.at("grad_norm").get<double>(), b.at("grad_norm").get<double>(), 1e-8);
}

TEST_F(TrainTest, RandomInitNeedsNoWeights) {
  std::filesystem::remove(here / "model/model.safetensors");
  train_well({"random_init=true"});
  EXPECT_NEAR(read_column(out(), "loss").at(0), std::log(264.0), 0.5);
}

// `tessera evaluate` gives the losses of the run's own evaluations, for what the run left and from any
// layout.
TEST_F(TrainTest, EvaluateGivesTheLossesOfTheRunOn1And3Ranks) {
  const auto evaluate = [&](const Words& words) {
    return nlohmann::json::parse(run_well(with({"evaluate", "--json"}, words)).out);
  };
  const Words data = {"val_set_size=6", "dtype=float64"};
  const Words keys = with(data, {"eval_steps=1", "save_steps=1", "max_steps=2", "micro_batch_size=3"});
  const auto check = [&](const Words& more) {
    train_well(with(keys, more));
    std::vector<double> losses;
    for (const auto& line : read_metrics(out())) {
      if (line.contains("eval_loss")) losses.push_back(line.at("eval_loss"));
    }
    ASSERT_EQ(losses.size(), 2u);
    const Words recipe = with(with({"recipe.yaml"}, data), more);
    const auto of_result = evaluate(recipe);
    EXPECT_NEAR(of_result.at("loss").get<double>(), losses[1], 1e-12);
    EXPECT_NEAR(of_result.at("perplexity").get<double>(), std::exp(losses[1]), 1e-9);
    EXPECT_EQ(of_result.at("rows"), "eval");
    const Words first = with(recipe, {"--model", "out/checkpoint-1"});
    EXPECT_NEAR(evaluate(first).at("loss").get<double>(), losses[0], 1e-12);
    EXPECT_NEAR(evaluate(with(recipe, {"--nproc", "3"})).at("loss").get<double>(), losses[1], 1e-12);
    // The model alone, on all rows.
    const auto of_file = evaluate({"out", "--data", "rows.jsonl", "dtype=float64"});
    const auto of_rows = evaluate(with({"recipe.yaml", "dtype=float64"}, more));
    EXPECT_NEAR(of_file.at("loss").get<double>(), of_rows.at("loss").get<double>(), 1e-12);
    EXPECT_EQ(of_file.at("rows"), "train");
    EXPECT_GT(of_file.at("label_tokens").get<int64_t>(), of_result.at("label_tokens").get<int64_t>());
  };
  check({});
  check({"adapter=lora", "lora_target_linear=true", "lora_r=3", "lora_dropout=0.1"});
  // The base model is evaluated where there is no result. A table is printed where no JSON is asked for.
  std::filesystem::remove_all(out());
  const std::string table = run_well({"evaluate", "recipe.yaml", "datasets.0.path=chats.jsonl",
                                      "datasets.0.type=chat_template", "label_smoothing_factor=0.5"})
                                .out;
  const auto plain = evaluate({"model", "--data", "chats.jsonl"});
  char loss[32];
  std::snprintf(loss, sizeof loss, " %.4f ", plain.at("loss").get<double>());
  EXPECT_NE(table.find(loss), std::string::npos) << table << plain;
  expect_error(run({"evaluate", "model"}), 2, "E-CONFIG-EVALUATE-DATA", {"--data FILE"});
  expect_error(run({"evaluate", "recipe.yaml", "--data", "chats.jsonl"}), 2, "E-CONFIG-EVALUATE-DATA",
               {"test_datasets"});
}

TEST_F(TrainTest, EvaluatesOnHeldOutRows) {
  train_well({"val_set_size=4", "eval_steps=2"});
  int64_t evaluations = 0;
  for (const auto& line : read_metrics(out())) {
    if (!line.contains("eval_loss")) continue;
    ++evaluations;
    EXPECT_GT(line.at("eval_loss").get<double>(), 0.0);
  }
  EXPECT_EQ(evaluations, 2);
}

TEST_F(TrainTest, SaveFinalFalseLeavesMetricsAlone) {
  train_well({"save_final=false"});
  EXPECT_EQ(read_metrics(out()).size(), 4u);
  EXPECT_FALSE(std::filesystem::exists(out("model.safetensors")));
}

TEST_F(TrainTest, ProgressIsOneLineOnATerminal) {
  for (const std::string more : {"", " --nproc 2"}) {
    const ProgramResult result = run_command(
        {"script", "-qec", std::string("'") + program_path() + "' train recipe.yaml max_steps=6" + more,
         "/dev/null"},
        {.folder = here.path()});
    EXPECT_EQ(result.exit_code, 0) << result.told();
    const Words steps = ProgramResult::lines_with(result.out, "step 6/6");
    ASSERT_EQ(steps.size(), 1u) << result.told();
    for (const char* part : {"\r", "step 5/6", "tokens/s", "of roofline", "left"}) {
      EXPECT_NE(steps[0].find(part), std::string::npos) << part << "\n" << result.told();
    }
    // A line about the first steps ends the progress line, which then goes on.
    EXPECT_EQ(ProgramResult::lines_with(result.out, "\r\033[Kstep").size(), 2u) << result.told();
    for (const char* part : {"step 1/6", "step 3/6"})
      EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.told();
  }
  // On a narrow terminal the line is cut, so that it never wraps.
  const ProgramResult narrow = run_command(
      {"script", "-qec",
       std::string("stty cols 30; '") + program_path() + "' train recipe.yaml max_steps=2 output_dir=narrow",
       "/dev/null"},
      {.folder = here.path()});
  const Words cut = ProgramResult::lines_with(narrow.out, "\r\033[Kstep 2/2");
  ASSERT_EQ(cut.size(), 1u) << narrow.told();
  const size_t last = cut[0].rfind("\033[K") + 3;
  EXPECT_LE(cut[0].find_last_not_of("\r\n") + 1 - last, 29u) << cut[0];
  // If the output is no terminal, the first step, one every few seconds, and the last one are told.
  const ProgramResult result = train_well({"max_steps=6"});
  EXPECT_EQ(result.err.find('\r'), std::string::npos);
  EXPECT_EQ(ProgramResult::lines_with(result.err, "step 6/6").size(), 1u) << result.told();
}

TEST_F(TrainTest, ClosedStdoutDoesNotStopIt) {
  for (const Words& more : {Words{}, Words{"--nproc", "2"}}) {
    const ProgramResult result = train(more, {.has_closed_stdout = true});
    EXPECT_EQ(result.exit_code, 0) << result.told();
    EXPECT_TRUE(std::filesystem::exists(out("model.safetensors")));
    std::filesystem::remove_all(out());
  }
}

TEST_F(TrainTest, ClosedStderrDoesNotStopIt) {
  for (const std::string more : {"", "--nproc 2"}) {
    // The reader leaves at once, so every later line meets a closed pipe.
    const ProgramResult result =
        run_command({"bash", "-c",
                     std::string("set -o pipefail; '") + program_path() +
                         "' train recipe.yaml max_steps=40 " + more + " 2>&1 >/dev/null | true"},
                    {.folder = here.path()});
    EXPECT_EQ(result.exit_code, 0) << more << result.told();
    EXPECT_EQ(read_metrics(out()).size(), 40u) << more;
    EXPECT_TRUE(std::filesystem::exists(out("model.safetensors")));
    std::filesystem::remove_all(out());
  }
}

// The disk of a redirected log is full.
TEST_F(TrainTest, FullStreamsDoNotStopIt) {
  for (const std::string more : {"", "--nproc 2"}) {
    const ProgramResult result =
        run_command({"bash", "-c",
                     std::string("exec '") + program_path() + "' train recipe.yaml max_steps=40 " + more +
                         " >/dev/full 2>/dev/full"},
                    {.folder = here.path()});
    EXPECT_EQ(result.exit_code, 0) << more << result.told();
    EXPECT_EQ(read_metrics(out()).size(), 40u) << more;
    EXPECT_TRUE(std::filesystem::exists(out("model.safetensors")));
    std::filesystem::remove_all(out());
  }
}

TEST_F(TrainTest, FileSizeLimitEndsInAnError) {
  // The model does not fit under the limit of 16 KiB; the logs do.
  const ProgramResult result = run_command(
      {"bash", "-c", std::string("ulimit -f 16; exec '") + program_path() + "' train recipe.yaml"},
      {.folder = here.path()});
  expect_error(result, 6, "E-STORAGE-TOO-LARGE", {"model.safetensors"});
  EXPECT_FALSE(std::filesystem::exists(out()));
  EXPECT_EQ(read_metrics(partial()).size(), 4u);
}

}  // namespace
}  // namespace tessera::testing
