// Tests of the effects of a recipe's keys, as a user sees them.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "tests/integration/fixture.h"
#include "tests/testing/paths.h"
#include "tests/testing/skip.h"
#include "tests/testing/small_disk.h"

namespace tessera::testing {
namespace {

using RecipeTest = ProgramTest;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<nlohmann::json> train_lines(const std::string& folder) {
  std::vector<nlohmann::json> lines;
  for (const auto& line : read_metrics(folder)) {
    if (line.contains("loss")) lines.push_back(line);
  }
  return lines;
}

int64_t num_evaluations(const std::string& folder) {
  int64_t count = 0;
  for (const auto& line : read_metrics(folder)) count += line.contains("eval_loss") ? 1 : 0;
  return count;
}

TEST_F(RecipeTest, AllThatIsWrongIsToldAtOnce) {
  write_text(here / "wrong.yaml",
             "base_model: nowhere\n"
             "datasets:\n"
             "  - path: missing.jsonl\n"
             "  - path: rows.jsonl\n"
             "    typ: alpaca\n"
             "learning_rate: fast\n"
             "load_in_4bit: true\n"
             "use_kernels: true\n"
             "output_dir: out\n");
  const ProgramResult result = run({"train", "wrong.yaml"});
  EXPECT_EQ(result.exit_code, 2) << result.told();
  const Words errors = result.error_lines();
  const Words parts = {
      "wrong.yaml:1:1: key 'base_model': no such folder",
      "wrong.yaml:3:5: key 'datasets.0.path': no such file", "wrong.yaml:5:5: unknown key 'datasets.1.typ'",
      "wrong.yaml:6:16: key 'learning_rate': wrong type", "wrong.yaml:7:1: key 'load_in_4bit'"};
  ASSERT_EQ(errors.size(), parts.size()) << result.told();
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(errors[i].rfind("tessera: error[E-CONFIG-", 0), 0u) << errors[i];
    EXPECT_TRUE(has(errors[i], parts[i])) << errors[i];
  }
  EXPECT_FALSE(std::filesystem::exists(out()));
}

TEST_F(RecipeTest, WarningsAreSaidOnceByManyRanks) {
  for (const Words& more : {Words{}, Words{"--nproc", "2"}}) {
    Words arguments = {"mlflow_tags=x", "max_steps=1", "save_final=false"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = train_well(arguments);
    EXPECT_EQ(ProgramResult::lines_with(result.err, "accepted without effect").size(), 1u) << result.told();
    std::filesystem::remove_all(out());
  }
}

TEST_F(RecipeTest, ALineTellsTheMeanLossOfItsSteps) {
  const Words chats = {"datasets.0.path=chats.jsonl", "datasets.0.type=chat_template", "micro_batch_size=5"};
  const auto train_with = [&](const Words& more) {
    Words all = chats;
    all.insert(all.end(), more.begin(), more.end());
    train_well(all);
  };
  train_with({});
  train_with({"logging_steps=3", "output_dir=windows"});
  const auto steps = train_lines(out()), windows = train_lines(here / "windows");
  ASSERT_EQ(steps.size(), 4u);
  ASSERT_EQ(windows.size(), 2u);
  double loss = 0.0, labels = 0.0;
  for (size_t i = 0; i < 3; ++i) {
    loss += steps[i].at("loss").get<double>() * steps[i].at("label_tokens").get<double>();
    labels += steps[i].at("label_tokens").get<double>();
  }
  EXPECT_NE(steps[0].at("label_tokens"), steps[2].at("label_tokens")) << "the weights should differ";
  EXPECT_EQ(windows[0].at("step"), 3);
  EXPECT_NEAR(windows[0].at("loss").get<double>(), loss / labels, 1e-12);
  EXPECT_EQ(windows[0].at("label_tokens").get<double>(), labels);
  EXPECT_EQ(windows[1].at("step"), 4);
  EXPECT_EQ(windows[1].at("loss"), steps[3].at("loss"));
}

TEST_F(RecipeTest, EvaluationCanBeSwitchedOff) {
  for (const char* off : {"eval_strategy=no", "eval_steps=0", "evals_per_epoch=0"}) {
    const ProgramResult result = train_well({"val_set_size=4", off, "output_dir=quiet"});
    EXPECT_EQ(num_evaluations(here / "quiet"), 0) << off;
    EXPECT_TRUE(has(result.err, "data: 20 rows, ")) << result.told();
    EXPECT_TRUE(has(result.err, "to evaluate: 4 rows, ")) << result.told();
    std::filesystem::remove_all(here / "quiet");
  }
  train_well({"val_set_size=4", "eval_strategy=steps", "logging_steps=2"});
  EXPECT_EQ(num_evaluations(out()), 2);
}

TEST_F(RecipeTest, EveryDatasetHasItsLoss) {
  write_text(here / "more.jsonl", tiny_rows(9));
  const ProgramResult result =
      train_well({"datasets.1.path=more.jsonl", "val_set_size=12", "eval_steps=2", "max_steps=6"});
  int64_t with_both = 0, evaluations = 0;
  for (const auto& line : read_metrics(out())) {
    const bool is_evaluation = line.contains("eval_loss");
    evaluations += is_evaluation ? 1 : 0;
    const auto losses = line.at(is_evaluation ? "eval_losses" : "losses");
    double low = 1e9, high = -1e9;
    for (const auto& [name, loss] : losses.items()) {
      EXPECT_TRUE(name == "rows" || name == "more") << name;
      low = std::min(low, loss.get<double>());
      high = std::max(high, loss.get<double>());
    }
    with_both += losses.size() == 2 ? 1 : 0;
    const double all = line.at(is_evaluation ? "eval_loss" : "loss");
    EXPECT_GE(all, low - 1e-5);
    EXPECT_LE(all, high + 1e-5);
  }
  EXPECT_EQ(evaluations, 3);
  EXPECT_GE(with_both, 1);
  EXPECT_TRUE(has(result.err, " (rows ") || has(result.err, " (more ")) << result.told();
}

TEST_F(RecipeTest, ShareOfTheStepsBetweenLinesAndEvaluations) {
  train_well({"val_set_size=4", "eval_steps=0.5", "logging_steps=0.6"});
  EXPECT_EQ(num_evaluations(out()), 2);
  const auto lines = train_lines(out());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].at("step"), 3);
  EXPECT_EQ(lines[1].at("step"), 4);
}

TEST_F(RecipeTest, EvaluationShowsItsProgress) {
  const ProgramResult result = run_command(
      {"script", "-qec",
       std::string("'") + program_path() + "' train recipe.yaml val_set_size=8 eval_steps=2", "/dev/null"},
      {.folder = here.path()});
  EXPECT_EQ(result.exit_code, 0) << result.told();
  EXPECT_TRUE(has(result.out, "step 2/4  evaluating 1/4")) << result.told();
  EXPECT_TRUE(has(result.out, "step 4/4  evaluating 4/4")) << result.told();
  EXPECT_TRUE(has(result.out, "'% of roofline' below shows")) << result.told();
}

TEST_F(RecipeTest, AWarmUpLongerThanTheRunIsNotCut) {
  const ProgramResult result = train_well({"max_steps=3", "warmup_steps=10", "lr_scheduler=cosine"});
  EXPECT_TRUE(has(result.err,
                  "the warm-up of 10 steps is longer than the run of 3: the learning rate never reaches "
                  "0.01, its highest is 0.002"))
      << result.told();
  const auto lr = read_column(out(), "lr");
  ASSERT_EQ(lr.size(), 3u);
  for (size_t step = 0; step < lr.size(); ++step) {
    EXPECT_DOUBLE_EQ(lr[step], 1e-3 * static_cast<double>(step));
  }
}

TEST_F(RecipeTest, WithoutAWarmUpKeyThreePercent) {
  train_well({"max_steps=70", "lr_scheduler=constant_with_warmup", "micro_batch_size=1", "save_final=false"});
  const auto lr = read_column(out(), "lr");
  EXPECT_EQ(lr.at(0), 0.0);
  EXPECT_DOUBLE_EQ(lr.at(1), 5e-3);
  EXPECT_DOUBLE_EQ(lr.at(2), 1e-2);
}

TEST_F(RecipeTest, TheCurrentFolderComesBeforeTheRecipes) {
  std::filesystem::create_directories(here / "sub/sub");
  write_text(here / "sub/recipe.yaml", read_text(here / "recipe.yaml"));
  write_text(here / "sub/rows.jsonl", tiny_rows(10));
  write_text(here / "sub/sub/rows.jsonl", tiny_rows(5));
  const auto told = [&](const Words& more) {
    Words arguments = {"train", "sub/recipe.yaml", "max_steps=1", "save_final=false"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_well(arguments).err;
  };
  EXPECT_TRUE(has(told({}), "data: 24 rows, "));
  std::filesystem::remove(here / "rows.jsonl");
  EXPECT_TRUE(has(told({}), "data: 10 rows, ")) << "found beside the recipe, and not looked for again";

  write_text(here / "chat.jinja", tiny_chat_template());
  write_text(here / "sub/chat.jinja", "{{ raise_exception('of the other folder') }}");
  told({"datasets.0.path=chats.jsonl", "datasets.0.type=chat_template", "chat_template=jinja",
        "chat_template_jinja=chat.jinja"});
}

TEST_F(RecipeTest, PreparedRowsFollowTheTokenizerAndTheTemplate) {
  write_text(here / "chat.jinja", tiny_chat_template());
  Words keys = {"datasets.0.path=chats.jsonl",
                "datasets.0.type=chat_template",
                "chat_template=jinja",
                "chat_template_jinja=chat.jinja",
                "dataset_prepared_path=prepared",
                "max_steps=1",
                "save_final=false"};
  const auto expect_made_once = [&](const std::string& what) {
    EXPECT_FALSE(has(train_well(keys).err, "prepared rows taken from")) << what;
    EXPECT_TRUE(has(train_well(keys).err, "prepared rows taken from")) << what;
  };
  expect_made_once("the first run");
  for (const char* name : {"model/tokenizer.json", "model/tokenizer_config.json", "chat.jinja"}) {
    write_text(here / name, read_text(here / name) + "\n");
    expect_made_once(name);
  }
  write_text(here / "model/special_tokens_map.json", "{}");
  expect_made_once("a file that is new");
  keys.push_back("special_tokens.pad_token=<|endoftext|>");
  expect_made_once("special_tokens");
}

TEST_F(RecipeTest, LoraTargetsUnite) {
  train_well({"adapter=lora", "lora_target_linear=true", "lora_target_modules=[q_proj]", "max_steps=1"});
  const auto config = nlohmann::json::parse(read_text(out("adapter_config.json")));
  const auto targets = config.at("target_modules").get<std::set<std::string>>();
  EXPECT_EQ(targets, (std::set<std::string>{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                                            "down_proj"}));
  run_well({"merge", "out", "merged"});
}

TEST_F(RecipeTest, ModelAndAdapterAreCheckedBeforeData) {
  write_text(here / "broken.jsonl", "{\n");
  for (const Words& verb : {Words{"train"}, Words{"data", "show"}}) {
    const auto run_with = [&](Words more) {
      Words arguments = verb;
      arguments.insert(arguments.end(), {"recipe.yaml", "datasets.0.path=broken.jsonl"});
      arguments.insert(arguments.end(), more.begin(), more.end());
      return run(arguments);
    };
    expect_error(run_with({}), 3, "E-DATA", {"broken.jsonl:1"});
    expect_error(run_with({"adapter=lora", "lora_target_modules=[q_prj]"}), 2, "E-CONFIG-LORA-TARGET",
                 {"'q_prj'", "q_proj"});
    expect_error(run_with({"adapter=lora", "lora_target_linear=true", "lora_modules_to_save=[nonesuch]"}), 2,
                 "E-CONFIG-LORA-TARGET", {"'nonesuch'"});
    expect_error(run_with({"adapter=lora", "lora_model_dir=model"}), 2, "E-CONFIG-NOT-AN-ADAPTER",
                 {"key 'lora_model_dir'", "adapter_config.json"});
    const ProgramResult all = run_with(
        {"adapter=lora", "lora_target_modules=[q_prj]", "tokens=['']", "additional_special_tokens=['']"});
    EXPECT_EQ(all.exit_code, 2) << all.told();
    EXPECT_EQ(all.error_lines().size(), 3u) << all.told();
    for (const char* part : {"did you mean 'q_proj'", "key 'tokens': a token is empty",
                             "key 'additional_special_tokens': a token"}) {
      EXPECT_EQ(ProgramResult::lines_with(all.err, part).size(), 1u) << part << all.told();
    }
    expect_error(run_with({"dp_shard_size=2", "--nproc", "3"}), 2, "E-CONFIG-PARALLELISM", {"3 ranks"});
    std::filesystem::remove_all(out());
  }
  write_text(here / "named.yaml",
             read_text(here / "recipe.yaml") + "adapter: lora\nlora_target_modules: [q_prj]\n");
  expect_error(run({"data", "show", "named.yaml"}), 2, "E-CONFIG-LORA-TARGET", {"named.yaml:11:1"});
  write_text(here / "named.yaml", read_text(here / "recipe.yaml") + "tokens:\n  - ''\n");
  expect_error(run({"train", "named.yaml"}), 2, "E-CONFIG-NEW-TOKEN", {"named.yaml:10:1", "'tokens'"});
}

TEST_F(RecipeTest, AContinuedAdapterDecidesWhatItIs) {
  train_well({"adapter=lora", "lora_target_modules=[q_proj, v_proj]", "lora_r=3", "lora_alpha=5",
              "peft_use_rslora=true", "output_dir=first"});
  const Words more = {"adapter=lora", "lora_model_dir=first", "max_steps=1", "lora_dropout=0.25"};
  train_well(more);
  const std::string trained = read_text(out("recipe.yaml"));
  for (const char* line : {"lora_r: 3\n", "lora_alpha: 5\n", "lora_dropout: 0.25\n",
                           "lora_target_modules: [\"q_proj\",\"v_proj\"]\n", "lora_target_linear: false\n",
                           "peft_use_rslora: true\n"}) {
    EXPECT_TRUE(has(trained, line)) << line << trained;
  }
  // Settings that agree with the adapter may be repeated, also under other keys.
  const auto with = [&](const Words& words) {
    Words all = more;
    all.insert(all.end(), words.begin(), words.end());
    return all;
  };
  train_well(with({"lora_r=3", "lora_alpha=5.0", "lora_target_modules='.*[qv]_proj'"}));
  const ProgramResult refused =
      train(with({"lora_r=8", "lora_alpha=16", "peft_use_rslora=false", "lora_target_linear=true"}));
  EXPECT_EQ(refused.exit_code, 2) << refused.told();
  EXPECT_EQ(refused.error_lines().size(), 4u) << refused.told();
  for (const char* part : {"key 'lora_r': the adapter of lora_model_dir has another value; got 8, need 3",
                           "key 'lora_alpha'", "key 'peft_use_rslora'",
                           "key 'lora_target_linear': the adapter of lora_model_dir has another value; "
                           "got q_proj, k_proj, v_proj"}) {
    EXPECT_EQ(ProgramResult::lines_with(refused.err, part).size(), 1u) << part << refused.told();
  }
  expect_error(train(with({"lora_modules_to_save=[norm]"})), 2, "E-CONFIG-LORA-CONTINUED",
               {"key 'lora_modules_to_save'", "need nothing"});
  write_text(here / "more.yaml",
             read_text(here / "recipe.yaml") + "adapter: lora\nlora_model_dir: first\nlora_r: 8\n");
  expect_error(run({"train", "more.yaml"}), 2, "E-CONFIG-LORA-CONTINUED", {"more.yaml:12:1"});
}

TEST_F(RecipeTest, TheComputeTypeIsAlwaysSaid) {
  EXPECT_TRUE(has(train_well({"max_steps=1"}).err, "dtype: computing in float32\n"));
  EXPECT_TRUE(has(train_well({"max_steps=1", "bf16=true"}).err, "dtype: computing in bfloat16, "));
}

TEST_F(RecipeTest, ControlTokensThatTheVocabularyLacksAreTold) {
  const Words chats = {"datasets.0.path=chats.jsonl", "datasets.0.type=chat_template", "max_steps=1"};
  Words llama = chats;
  llama.push_back("chat_template=llama3");
  EXPECT_TRUE(has(train_well(llama).err,
                  "chat_template: llama3 writes <|start_header_id|>, <|end_header_id|>, "
                  "<|eot_id|>, which the model's vocabulary lacks"));
  EXPECT_FALSE(has(train_well(chats).err, "vocabulary lacks"));
}

TEST_F(RecipeTest, HelpAndVersionAreVerbsToo) {
  for (const Words& words : {Words{"version"}, Words{"-V"}, Words{"--version"}}) {
    EXPECT_EQ(run_well(words).out.rfind("tessera ", 0), 0u) << words[0];
  }
  EXPECT_EQ(run_well({"help"}).out, run_well({"--help"}).out);
  EXPECT_EQ(run_well({"help", "train"}).out, run_well({"train", "--help"}).out);
  EXPECT_EQ(run_well({"help", "data", "show"}).out, run_well({"data", "show", "--help"}).out);
  EXPECT_TRUE(has(run_well({"help", "train"}).out, "--nproc"));
}

TEST_F(RecipeTest, CheckPrintsTheRecipeAndWhereItIsFrom) {
  const ProgramResult result = run_well({"recipe", "check", "recipe.yaml", "seed=7", "--nproc", "2"});
  EXPECT_TRUE(has(result.out, "learning_rate: 0.01")) << result.out;
  EXPECT_TRUE(has(result.out, "# recipe.yaml:4\n")) << result.out;
  EXPECT_TRUE(has(result.out, "# command line\n")) << result.out;
  EXPECT_TRUE(has(result.out, "# batch: micro_batch_size ")) << result.out;
  EXPECT_TRUE(has(result.out, "# steps: ")) << result.out;
  EXPECT_FALSE(has(result.out, "# default\n")) << result.out;
  const Words check = {"recipe", "check", "recipe.yaml"};
  const std::string all = run_well(with(check, {"--all"})).out;
  EXPECT_TRUE(has(all, "# default\n")) << all;
  EXPECT_GT(all.size(), 2 * result.out.size());
  const std::string counted = run_well(with(check, {"--rows", "max_steps=0", "num_epochs=2"})).out;
  EXPECT_TRUE(has(counted, " rows, ") && has(counted, " an epoch on one data-parallel rank")) << counted;
  const Words batch = with(check, {"global_batch_size=12"});
  EXPECT_TRUE(has(run_well(batch).out, "# batch: global_batch_size = 12 sequences per step"));
  EXPECT_TRUE(has(run_well(with(batch, {"--nproc", "3"})).out, "2 x 3 data-parallel ranks = 12 sequences"));
  EXPECT_TRUE(has(run_well(with(batch, {"--rows", "max_steps=0", "num_epochs=2"})).out, "# steps: 4,"));
  // It refuses what a training refuses before its first step.
  expect_error(run(with(check, {"rl=dpo", "datasets.0.type=chatml.intel"})), 2, "E-CONFIG", {"dpo"});
  expect_error(run(with(check, {"device=cuda:99"})), 2, "E-CONFIG-DEVICE", {"cuda:99"});
  std::filesystem::create_directory(here / "used");
  write_text(here / "used/file", "x");
  expect_error(run(with(check, {"output_dir=used"})), 2, "E-CONFIG-OUTPUT", {"used"});
  EXPECT_FALSE(std::filesystem::exists(here / "used.tessera-lock"));
  write_text(here / "resolved.yaml", result.out);
  EXPECT_EQ(run({"train", "resolved.yaml", "max_steps=1"}).exit_code, 0);
  write_text(
      here / "wrong.yaml",
      "base_model: model\ndatasets: [{path: rows.jsonl}]\nlearning_rte: 1\nlearning_rate: x\nrl: grpo\n");
  const ProgramResult wrong = run({"recipe", "check", "wrong.yaml"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_EQ(wrong.error_lines().size(), 3u) << wrong.told();
  EXPECT_EQ(wrong.out, "");
  expect_error(run({"recipe", "check", "recipe.yaml", "--nproc", "3", "tensor_parallel_size=2"}), 2,
               "E-CONFIG", {"tensor_parallel_size"});
  expect_error(run({"recipe", "check", "recipe.yaml", "base_model=nowhere"}), 2, "E-CONFIG-NOT-FOUND",
               {"no such folder"});
  run_well({"recipe", "check", "recipe.yaml", "base_model=nowhere", "--keys-only"});
}

TEST_F(RecipeTest, AFileOfAccelerateSaysMore) {
  write_text(here / "accelerate.yaml", "mixed_precision: bf16\ndistributed_type: MULTI_CPU\n");
  const ProgramResult result =
      train_well({"--accelerate-config", "accelerate.yaml", "--nproc", "2", "max_steps=1"});
  EXPECT_TRUE(has(result.err, "dtype: computing in bfloat16")) << result.told();
  EXPECT_TRUE(has(result.err, "dp_replicate 2")) << result.told();
}

// A curriculum of prepared rows: the second dataset rests until step 3. The run on three ranks ends in the
// middle and goes on; it is compared with one rank.
TEST_F(RecipeTest, PreparedRowsAreMixedByTheStepOn1And3Ranks) {
  write_text(here / "other.jsonl", tiny_rows(9));
  write_text(here / "mix.yaml",
             "base_model: model\n"
             "datasets:\n"
             "  - path: rows.jsonl\n"
             "  - {path: other.jsonl, weight: 0, weight_from_step: {3: 2}}\n"
             "learning_rate: 1e-2\nlr_scheduler: constant\nmax_steps: 8\ndtype: float64\n"
             "micro_batch_size: 1\nlogging_steps: 1\nsave_steps: 5\nsave_total_limit: 3\n");
  const auto train_on = [&](int ranks, const Words& more) {
    const Words words = {"train", "mix.yaml", "--nproc", std::to_string(ranks),
                         "gradient_accumulation_steps=" + std::to_string(6 / ranks)};
    return run_well(with(words, more));
  };
  EXPECT_TRUE(has(train_on(1, {"output_dir=one"}).err, "8 steps done"));
  train_on(3, {"output_dir=three", "max_steps=5"});
  const ProgramResult resumed = train_on(3, {"output_dir=three", "auto_resume_from_checkpoints=true"});
  const auto want = losses(here / "one"), got = losses(here / "three");
  ASSERT_EQ(want.size(), 8U);
  ASSERT_EQ(got.size(), 8U) << resumed.told();
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i].second, want[i].second, 1e-10 * want[i].second) << "step " << i;
  const auto lines = read_metrics(here / "three");
  for (const auto& line : lines)
    EXPECT_EQ(line.at("losses").contains("other"), line.at("step") >= 3) << line.dump();
}

TEST_F(RecipeTest, AFileOfAccelerateIsReadBeforeRowsArePrepared) {
  const Words prepare = {
      "data",           "prepare", "recipe.yaml", "dataset_prepared_path=prepared", "--accelerate-config",
      "accelerate.yaml"};
  write_text(here / "accelerate.yaml", "distributed_type: MULTI_CPU\nmixed_precision: fp7\n");
  expect_error(run(prepare), 2, "E-CONFIG", {"accelerate.yaml:2", "fp7"});
  EXPECT_FALSE(std::filesystem::exists(here / "prepared"));
  write_text(here / "accelerate.yaml", "distributed_type: MULTI_CPU\nmixed_precision: bf16\n");
  const ProgramResult made = run_well(with(prepare, {"sample_packing=true", "sequence_len=64"}));
  const auto is_packing = [](const auto& entry) { return entry.path().extension() == ".packed"; };
  EXPECT_EQ(std::ranges::count_if(std::filesystem::directory_iterator(here / "prepared"), is_packing), 1);
  EXPECT_TRUE(has(made.out, "rows.jsonl: 24 rows")) << made.told();
  EXPECT_TRUE(has(made.out, "kept in ")) << made.told();
  // A training with the same file finds the prepared rows.
  const ProgramResult trained = train_well({"dataset_prepared_path=prepared", "--accelerate-config",
                                            "accelerate.yaml", "max_steps=1", "sequence_len=64"});
  EXPECT_TRUE(has(trained.err, "prepared rows taken from")) << trained.told();
  EXPECT_TRUE(has(trained.err, "dtype: computing in bfloat16")) << trained.told();
  expect_error(run({"data", "prepare", "recipe.yaml", "--accelerate-config", "accelerate.yaml"}), 2,
               "E-CONFIG-PREPARED-PATH", {"recipe.yaml"});
}

TEST_F(RecipeTest, InitWritesARecipeThatTrains) {
  run_well({"recipe", "init", "new.yaml", "base_model=model", "datasets.0.path=rows.jsonl",
            "learning_rate=1e-3", "max_steps=1", "output_dir=new"});
  EXPECT_EQ(run({"train", "new.yaml"}).exit_code, 0);
  expect_error(run({"recipe", "init", "new.yaml"}), 2, "E-CONFIG-OUTPUT-USED", {"--overwrite"});
  const std::string skeleton = run_well({"recipe", "init", "-", "learning_rate=1e-3"}).out;
  for (const char* line : {"# To be filled in: base_model, datasets\n", "\nbase_model: \"MODEL_FOLDER\"",
                           "path: \"DATA_FILE\"", "\nlearning_rate: 0.001"})
    EXPECT_TRUE(has(skeleton, line)) << line << "\n" << skeleton;
  EXPECT_TRUE(has(run_well({"recipe", "schema"}).out, "\"learning_rate\""));
  EXPECT_TRUE(has(run_well({"recipe", "keys"}).out, "# Reference of all keys"));
  EXPECT_TRUE(
      has(run_well({"recipe", "convert", "--arguments", "--learning_rate 3"}).out, "learning_rate: 3"));
}

// The tables grow where the vocabulary needs it, and only there.
TEST_F(RecipeTest, TablesGrowWithTheVocabulary) {
  const auto told = [&](const Words& words) {
    return run_well(with({"recipe", "check", "recipe.yaml"}, words)).err;
  };
  EXPECT_FALSE(has(told({"tokens=['<|im_start|>', a]"}), "vocabulary grows"));
  EXPECT_FALSE(has(told({"tokens=['<new>']"}), "vocabulary grows")) << "the model has spare rows";
  EXPECT_TRUE(has(told({"tokens=['<new>']"}), "new tokens have the ids 259 to 259"));
  const Words six = {"tokens=['<1>', '<2>', '<3>', '<4>', '<5>', '<6>']"};
  EXPECT_TRUE(has(told(six), "grows from 264 to 265 rows"));
  EXPECT_TRUE(has(told({"resize_token_embeddings_to_32x=true"}), "grows from 264 to 288 rows"));
  EXPECT_TRUE(has(told({"shrink_embeddings=true"}), "shrinks from 264 to 259 rows"));
  const std::string frozen = told(with(six, {"adapter=lora", "lora_target_linear=true"}));
  EXPECT_TRUE(has(frozen, "1 new tokens keep random embeddings")) << frozen;
  expect_error(train({"model_config.hidden_size=-1"}), 2, "E-CONFIG-MODEL-CONFIG",
               {"key 'model_config'", "key 'hidden_size'", "got -1"});
  EXPECT_EQ(train({"model_config.rope_theta=500", "max_steps=1"}).exit_code, 0);
  EXPECT_TRUE(has(read_text(out("config.json")), "\"rope_theta\": 500"));
}

TEST_F(RecipeTest, FrozenWeightsStayAndTheRestLearns) {
  train_well({"unfrozen_parameters=['^model.layers.1.mlp']"});
  int64_t changed = 0;
  for (const char* name : {"model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight",
                           "model.layers.1.self_attn.q_proj.weight", "model.norm.weight"}) {
    EXPECT_EQ(read_f32(out("model.safetensors"), name), read_f32(model() + "/model.safetensors", name))
        << name;
  }
  for (const char* name : {"up_proj", "down_proj", "gate_proj"}) {
    const std::string whole = std::string("model.layers.1.mlp.") + name + ".weight";
    changed += read_f32(out("model.safetensors"), whole) != read_f32(model() + "/model.safetensors", whole);
  }
  EXPECT_EQ(changed, 3);
  expect_error(train({"unfrozen_parameters=[nothing]"}), 2, "E-CONFIG-UNFROZEN", {"no parameter is trained"});
}

// A tracker that fails never stops a run, wherever its files would lie.
TEST_F(RecipeTest, TrackersWithoutAPlaceToWriteAreLeftOut) {
  const SmallDisk full(here / "full", "64k"), read_only(here / "read-only", "64k");
  std::vector<std::string> places = {"/proc/nowhere", here / "rows.jsonl/runs"};
  if (full.is_mounted() && read_only.is_mounted()) {
    std::ofstream(here / "full/rest") << std::string(100'000, 'x');
    ASSERT_EQ(mount("none", (here / "read-only").c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=64k"), 0);
    places.push_back(here / "full");
    places.push_back(here / "read-only");
  } else {
    report_skip(skip::kPermission, current_test());
  }
  for (const std::string& place : places) {
    const ProgramResult result =
        train({"mlflow_tracking_uri=" + place, "prometheus_file=" + place + "/run.prom"});
    EXPECT_EQ(result.exit_code, 0) << result.told();
    EXPECT_EQ(ProgramResult::lines_with(result.err, "training continues without MLflow").size(), 1u)
        << result.told();
    EXPECT_EQ(read_metrics(out()).size(), 4u);
    std::filesystem::remove_all(out());
  }
}

TEST_F(RecipeTest, ARunEndsWhenItsEvaluationsGetNoBetter) {
  const Words stopping = {"val_set_size=4", "eval_steps=2",    "early_stopping_patience=2",
                          "max_steps=40",   "logging_steps=3", "early_stopping_threshold=1000",
                          "save_steps=2"};
  for (const Words& ranks : {Words{}, Words{"--nproc", "3", "micro_batch_size=1"}}) {
    Words arguments = stopping;
    arguments.insert(arguments.end(), ranks.begin(), ranks.end());
    const ProgramResult result = train_well(arguments);
    EXPECT_EQ(ProgramResult::lines_with(result.err, "stopped early after step 6").size(), 1u)
        << result.told();
    EXPECT_EQ(num_evaluations(out()), 3);
    EXPECT_EQ(train_lines(out()).back().at("step"), 6) << "also the steps since the last line";
    EXPECT_TRUE(std::filesystem::exists(out("model.safetensors")));
    // The counter is part of a checkpoint: a run that goes on from step 4 stops at the same step.
    Words again = arguments;
    again.insert(again.end(), {"resume_from_checkpoint=out/checkpoint-4", "output_dir=again"});
    const ProgramResult resumed = train_well(again);
    EXPECT_EQ(ProgramResult::lines_with(resumed.err, "stopped early after step 6").size(), 1u)
        << resumed.told();
    std::filesystem::remove_all(here / "again");
    std::filesystem::remove_all(out());
  }
}

TEST_F(RecipeTest, BashCompletesVerbsFlagsAndKeys) {
  const ProgramResult script = run_well({"completion", "bash"});
  write_text(here / "completion.bash", script.out);
  const auto complete = [&](const std::string& words) {
    const std::string command = "bash -c 'source " + (here / "completion.bash") + "; COMP_WORDS=(" + words +
                                "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tessera 2> /dev/null; "
                                "echo ${COMPREPLY[@]}' > " +
                                (here / "words");
    EXPECT_EQ(std::system(command.c_str()), 0);
    return read_text(here / "words");
  };
  EXPECT_EQ(complete("tessera rec"), "recipe\n");
  EXPECT_EQ(complete("tessera recipe che"), "check\n");
  EXPECT_EQ(complete("tessera train r.yaml --max-r"), "--max-restarts\n");
  EXPECT_EQ(complete("tessera train r.yaml learning_r"), "learning_rate=\n");
  EXPECT_EQ(complete("tessera doctor learning_r"), "\n");
  EXPECT_EQ(run({"completion", "csh"}).exit_code, 2);
}

bool has_program(const std::string& name) {
  return run_command({"sh", "-c", "command -v " + name + " > /dev/null"}).exit_code == 0;
}

// Checks the completions that the shell itself offers on a terminal.
TEST_F(RecipeTest, ZshCompletesVerbsFlagsAndKeys) {
  const std::string script = run_well({"completion", "zsh"}).out;
  EXPECT_TRUE(has(script, "max-restarts"));
  if (!has_program("zsh")) GTEST_SKIP() << skip::kShell << ": zsh";
  std::filesystem::create_directory(here / "functions");
  write_text(here / "functions/_tessera", script);
  // The script logs the calls of compadd while a line is completed, in a shell on a terminal of its own.
  write_text(
      here / "complete.zsh",
      "zmodload zsh/zpty\n"
      "zpty -b shell zsh -f -i\n"
      "zpty -w shell 'PROMPT= RPS1=; unsetopt zle_bracketed_paste 2> /dev/null; fpath=(' $PWD'/functions "
      "$fpath); autoload -Uz compinit; compinit -u -d ' $PWD'/dump; "
      "bindkey \"^I\" complete-word; zstyle \":completion:*\" insert-tab no; echo rea\\dy'\n"
      "zpty -r -m shell line '*ready*'\n"
      "zpty -w -n shell \"$1\"$'\\t\\C-a'\"echo '<\"$'\\C-e'\">'\"$'\\n'\n"
      "zpty -r -m shell line $'*\\n<*>*'\n"
      "print -r -- ${${line##*$'\\n'<}%%>*}\n");
  const auto complete = [&](const std::string& line) {
    const ProgramResult result =
        run_command({"zsh", "-f", "complete.zsh", line}, {.timeout_s = 60, .folder = here.path()});
    EXPECT_EQ(result.exit_code, 0) << result.told();
    return result.out;
  };
  EXPECT_EQ(complete("tessera rec"), "tessera recipe\n");
  EXPECT_EQ(complete("tessera recipe che"), "tessera recipe check\n");
  EXPECT_EQ(complete("tessera train r.yaml --max-r"), "tessera train r.yaml --max-restarts\n");
  EXPECT_EQ(complete("tessera train r.yaml learning_r"), "tessera train r.yaml learning_rate=\n");
}

TEST_F(RecipeTest, FishCompletesVerbsFlagsAndKeys) {
  const std::string script = run_well({"completion", "fish"}).out;
  EXPECT_TRUE(has(script, "max-restarts"));
  if (!has_program("fish")) GTEST_SKIP() << skip::kShell << ": fish";
  write_text(here / "tessera.fish", script);
  const auto complete = [&](const std::string& line) {
    const ProgramResult result =
        run_command({"fish", "--no-config", "-c", "source tessera.fish; complete -C '" + line + "'"},
                    {.folder = here.path()});
    EXPECT_EQ(result.exit_code, 0) << result.told();
    EXPECT_EQ(result.err, "");
    std::string words;
    for (const std::string& word : ProgramResult::lines(result.out))
      words += word.substr(0, word.find('\t')) + "\n";
    return words;
  };
  EXPECT_EQ(complete("tessera rec"), "recipe\n");
  EXPECT_EQ(complete("tessera recipe che"), "check\n");
  EXPECT_EQ(complete("tessera train r.yaml --max-r"), "--max-restarts\n");
  EXPECT_EQ(complete("tessera train r.yaml learning_r"), "learning_rate=\n");
  EXPECT_FALSE(has(complete("tessera doctor learning_r"), "learning_rate"));
}

TEST_F(RecipeTest, InitAsksOnATerminal) {
  const auto init = [&](const std::string& answers) {
    std::filesystem::remove(here / "asked.yaml");
    return run_command({"sh", "-c",
                        "printf '" + answers + "' | script -qec '" + program_path() +
                            " recipe init asked.yaml seed=7' /dev/null"},
                       {.folder = here.path()});
  };
  const ProgramResult all = init("model\\nrows.jsonl\\n\\nboth\\nfull\\nfast\\n3e-4\\nout\\n");
  EXPECT_EQ(all.exit_code, 0) << all.told();
  EXPECT_TRUE(has(all.out, "'both' cannot be; need lora or full")) << all.told();
  EXPECT_TRUE(has(all.out, "'fast' cannot be; need a number, such as 2e-5")) << all.told();
  const std::string text = read_text(here / "asked.yaml");
  for (const char* line :
       {"base_model: \"model\"", "learning_rate: 3e-04", "seed: 7", "path: \"rows.jsonl\""})
    EXPECT_TRUE(has(text, line)) << line << "\n" << text;
  EXPECT_FALSE(has(text, "\nadapter: ")) << text;
  run_well({"train", "asked.yaml", "max_steps=1", "output_dir=asked"});
  // At the end of the input all offered values are taken, and keys without an offer are reported as missing.
  const ProgramResult none = init("");
  EXPECT_EQ(none.exit_code, 2) << none.told();
  EXPECT_TRUE(has(none.out, "missing keys base_model, datasets")) << none.told();
  EXPECT_FALSE(std::filesystem::exists(here / "asked.yaml"));
  const ProgramResult most = init("model\\nrows.jsonl\\n");
  EXPECT_EQ(most.exit_code, 0) << most.told();
  EXPECT_TRUE(has(read_text(here / "asked.yaml"), "\nadapter: \"lora\"")) << read_text(here / "asked.yaml");
}

// A tracker that cannot write is reported and left out; one that can write does.
TEST_F(RecipeTest, TrackersNeverStopARun) {
  write_text(here / "file", "");
  const ProgramResult result =
      train({"max_steps=2", "report_to=[wandb, mlflow]", "use_otel_metrics=true",
             "mlflow_tracking_uri=" + (here / "file"), "prometheus_file=no/such/run.prom"});
  EXPECT_EQ(result.exit_code, 0) << result.told();
  EXPECT_TRUE(has(result.err, "training continues without MLflow: ")) << result.told();
  EXPECT_TRUE(has(result.err, "wandb sync ") && has(result.err, "out/wandb/offline-run-*")) << result.told();
  EXPECT_TRUE(std::filesystem::exists(out() + "/otel/metrics.jsonl"));
  EXPECT_TRUE(std::filesystem::exists(out() + "/wandb"));
  // A result that holds the files of all trackers can be replaced.
  const ProgramResult shown =
      train_well({"max_steps=2", "use_mlflow=true", "use_otel_metrics=true", "overwrite_output_dir=true"});
  EXPECT_TRUE(has(shown.err, "mlflow ui --backend-store-uri " + (here / "mlruns"))) << shown.told();
  EXPECT_TRUE(std::filesystem::exists(here / "mlruns/0/meta.yaml"));
}

}  // namespace
}  // namespace tessera::testing
