// Tests of `tessera evaluate --tasks` as a user runs it, on the task files of the reference.
#include "tests/integration/fixture.h"
#include "tests/testing/paths.h"

namespace tessera::testing {
namespace {

class EvaluateTasksTest : public ProgramTest {
 protected:
  const std::string folder = source_folder() + "/tests/reference/data/tasks/";

  Words arguments(const Words& more) const {
    Words all = {"eval", folder + "model", "--tasks",
                 folder + "all.yaml," + folder + "endings.yaml," + folder + "sums.yaml"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  nlohmann::json results(const Words& more) const {
    return nlohmann::json::parse(run_well(arguments(more)).out);
  }
};

TEST_F(EvaluateTasksTest, OnUpTo4RanksTheScoresAreThoseOfTheHarness) {
  const auto theirs = nlohmann::json::parse(read_text(folder + "reference.json")).at("results");
  for (const Words& layout :
       {Words{}, Words{"--nproc", "3", "tensor_parallel_size=1"}, Words{"tensor_parallel_size=2"},
        Words{"--nproc", "4", "pipeline_parallel_size=2", "tensor_parallel_size=1"}}) {
    Words more = {"--json"};
    more.insert(more.end(), layout.begin(), layout.end());
    const auto ours = results(more).at("results");
    EXPECT_EQ(ours.size(), 9);
    for (const auto& [task, scores] : ours.items()) {
      for (const auto& [key, value] : scores.items()) {
        if (!value.is_number()) continue;
        const double want = theirs.at(task).at(key).get<double>();
        EXPECT_NEAR(value.get<double>(), want, 1e-4 * std::max(1.0, want)) << task << " " << key;
      }
    }
  }
}

TEST_F(EvaluateTasksTest, WritesResultsAndRefusesMistakes) {
  const Words one = {"evaluate", folder + "model", "--tasks", folder + "quiz.yaml", "--limit", "3"};
  const auto with = [&](const Words& more) {
    Words all = one;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const ProgramResult shown = run_well(
      with({"--num_fewshot", "0", "--output", "results.json", "--log_samples", "--bootstrap_iters", "0"}));
  EXPECT_NE(shown.out.find("|quiz |      1|none  |     0|acc            |"), std::string::npos)
      << shown.told();
  const auto json = nlohmann::json::parse(read_text(here / "results.json"));
  EXPECT_EQ(json.at("n-samples").at("quiz").at("effective"), 3);
  EXPECT_EQ(json.at("n-samples").at("quiz").at("original"), 10);
  EXPECT_EQ(json.at("samples").at("quiz").size(), 3);
  EXPECT_EQ(json.at("results").at("quiz").at("acc_stderr,none").is_number(), false);
  // The model has no template of its own.
  expect_error(run(with({"--apply_chat_template"})), 4, "E-MODEL", {"template"});
  run_well(with({"--chat-template", "chatml", "--system_instruction", "Be brief."}));
  expect_error(run(with({"--fewshot_as_multiturn", "true"})), 2, "E-CONFIG-USAGE", {"--apply_chat_template"});
  const ProgramResult compared = run_well(with({"--baseline", "results.json"}));
  EXPECT_NE(compared.out.find("compared with results.json, document by document"), std::string::npos)
      << compared.told();
  const auto differences =
      nlohmann::json::parse(run_well({"eval", "results.json", "--baseline", "results.json", "--json"}).out)
          .at("differences");
  EXPECT_EQ(differences.at(0).at("documents"), 3);
  EXPECT_EQ(differences.at(0).at("difference"), 0.0);
  expect_error(run(with({"--baseline", folder + "quiz.yaml"})), 2, "E-CONFIG-BASELINE", {"quiz.yaml"});
  expect_error(run(with({"--output", "results.json"})), 2, "E-CONFIG-OUTPUT-USED", {"--overwrite"});
  expect_error(run(with({"learning_rate=1"})), 2, "E-CONFIG-USAGE", {"tensor_parallel_size=N"});
  expect_error(run(with({"--type", "alpaca"})), 2, "E-CONFIG-USAGE", {"--type"});
  expect_error(run({"evaluate", "model", "--output", "x.json", "--data", "rows.jsonl"}), 2, "E-CONFIG-USAGE",
               {"belong to --tasks"});
  expect_error(run({"eval", folder + "model", "--tasks", "piqa", "--data", "."}), 2, "E-CONFIG-TASK-DATA",
               {"dataset_path: baber/piqa"});
  expect_error(run({"eval", folder + "model", "--tasks", "pica"}), 2, "E-CONFIG-TASK-NAME",
               {"did you mean 'piqa'?"});
}

// A run with several adapters gives the bits of runs with one.
TEST_F(EvaluateTasksTest, ScoresSeveralAdaptersInOneLoad) {
  train_well({"base_model=" + folder + "model", "adapter=lora", "lora_target_linear=true", "lora_r=2",
              "learning_rate=0.1", "sequence_len=64"});
  const Words tasks = {"eval",          folder + "model",
                       "--tasks",       folder + "quiz.yaml," + folder + "sums.yaml",
                       "--log_samples", "--json"};
  const auto all = nlohmann::json::parse(
      run_well(with(tasks, {"--adapter", "once=out", "--adapter", "twice=out:2", "--output", "r.json"})).out);
  ASSERT_EQ(all.size(), 2);
  EXPECT_NE(all.at("once").at("samples"), all.at("twice").at("samples"));
  for (const auto& [name, adapter] : {std::pair{"once", "out"}, {"twice", "out:2"}}) {
    const auto want = nlohmann::json::parse(run_well(with(tasks, {"--adapter", adapter})).out);
    EXPECT_EQ(all.at(name).at("results"), want.at("results")) << name;
    EXPECT_EQ(all.at(name).at("samples"), want.at("samples")) << name;
    EXPECT_EQ(nlohmann::json::parse(read_text(here / ("r." + std::string(name) + ".json"))), all.at(name));
  }
  // Ranks share the documents among whole models.
  const auto on_ranks =
      nlohmann::json::parse(run_well(with(tasks, {"--adapter", "a=out", "--nproc", "2"})).out);
  EXPECT_EQ(on_ranks.at("a").at("n-samples"), all.at("once").at("n-samples"));
  expect_error(run(with(tasks, {"--adapter", "a=out", "tensor_parallel_size=2"})), 2, "E-CONFIG-PARALLELISM",
               {"adapters with names"});
  expect_error(run(with(tasks, {"--adapter", "a=out", "--adapter", "out"})), 2, "E-CONFIG-ADAPTER-NAME", {});
}

}  // namespace
}  // namespace tessera::testing
