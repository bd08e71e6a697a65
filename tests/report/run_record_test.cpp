#include "tessera/report/run_record.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "tessera/core/error.h"

#include "tests/testing/temp_folder.h"

namespace tessera::report {
namespace {

using tessera::testing::TempFolder;

std::string error_of(const std::vector<std::string>& folders) {
  try {
    read_runs(folders);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(RunRecord, ReadsStepsEvaluationsAndRecipe) {
  const TempFolder here;
  here.write(
      "run/metrics.jsonl",
      "{\"step\":1,\"loss\":2.5,\"losses\":{\"chats\":2,\"a/b\":3},\"traffic\":{\"tp\":{\"wait_s\":0.5}}}\n"
      "{\"step\":1,\"eval_loss\":2.25,\"eval_losses\":{\"chats\":1.5}}\n"
      "{\"step\":2,\"loss\":null,\"note\":\"text\"}\n"
      "{\"step\":2,\"eval/arc_easy/acc\":0.5}\n"
      "{\"step\":3,\"lo");
  here.write("run/recipe.yaml", "base_model: m\n");
  here.write("run/samples.jsonl",
             "{\"step\":1,\"prompt\":\"a\",\"generated\":\"b\"}\n{\"step\":1,\"prompt\":7}\n"
             "{\"step\":2,\"dataset\":\"d\"}\n{\"step\":3,\"pro");
  const std::vector<RunRecord> runs = read_runs({here / "run/"});
  ASSERT_EQ(runs.size(), 1U);
  const RunRecord& run = runs.front();
  EXPECT_EQ(run.name, "run");
  EXPECT_EQ(run.recipe, "base_model: m\n");
  EXPECT_FALSE(run.is_unfinished);
  ASSERT_EQ(run.samples.size(), 2U);
  ASSERT_EQ(run.samples[0].rows.size(), 2U);
  EXPECT_EQ(run.samples[0].rows[0].generated, "b");
  EXPECT_EQ(run.samples[0].rows[1].prompt, "");
  EXPECT_EQ(run.samples[1].rows[0].dataset, "d");
  ASSERT_EQ(run.steps.size(), 2U);
  ASSERT_EQ(run.evaluations.size(), 2U);
  EXPECT_EQ(run.num_missing("loss"), 1U);
  EXPECT_EQ(run.num_missing("losses/chats"), 0U);
  EXPECT_EQ(run.points("loss"), (Points{{1, 2.5}}));
  EXPECT_EQ(run.points("losses/chats"), (Points{{1, 2.0}}));
  EXPECT_EQ(run.points("losses/a/b"), (Points{{1, 3.0}}));
  EXPECT_EQ(run.points("traffic/tp/wait_s"), (Points{{1, 0.5}}));
  EXPECT_EQ(run.points("eval_losses/chats"), (Points{{1, 1.5}}));
  EXPECT_EQ(run.points("eval/arc_easy/acc"), (Points{{2, 0.5}}));
  EXPECT_TRUE(run.points("note").empty());
  EXPECT_TRUE(run.points("step").empty());
}

TEST(RunRecord, FindsRunsThatGoOnAndFoldersOfRuns) {
  const TempFolder here;
  for (const char* run : {"sweep/b", "sweep/a", "other/a", "now.tessera-partial"}) {
    here.write(std::string(run) + "/metrics.jsonl", "{\"step\":1,\"loss\":1}\n");
  }
  here.write("sweep/notes.txt", "");
  // A folder that is named twice gives one run.
  const auto runs = read_runs({here / "sweep", here / "other/a", here / "now", here / "sweep/../sweep/a"});
  std::vector<std::string> names;
  for (const RunRecord& run : runs) names.push_back(run.name);
  EXPECT_EQ(names.size(), 4U);
  EXPECT_TRUE(names[0].ends_with("sweep/a")) << names[0];
  EXPECT_TRUE(names[1].ends_with("sweep/b")) << names[1];
  EXPECT_TRUE(names[2].ends_with("other/a")) << names[2];
  EXPECT_TRUE(names[3].ends_with("/now")) << names[3];
  EXPECT_TRUE(runs[3].is_unfinished);
}

TEST(RunRecord, RefusesWhatHoldsNoRun) {
  const TempFolder here;
  here.write("text/metrics.jsonl", "{\"step\":1,\"loss\":1}\nloss 3\n");
  here.write("list/metrics.jsonl", "[1]\n");
  here.write("step/metrics.jsonl", "{\"step\":\"one\"}\n");
  here.write("large/metrics.jsonl", "{\"step\":18446744073709551516}\n");
  std::filesystem::create_directories(here / "empty");
  for (const char* none : {"empty", "missing"}) {
    const std::string error = error_of({here / none});
    EXPECT_NE(error.find("E-CONFIG-REPORT"), std::string::npos) << error;
    EXPECT_NE(error.find(none), std::string::npos) << error;
  }
  EXPECT_NE(error_of({here / "text"}).find("metrics.jsonl:2"), std::string::npos)
      << error_of({here / "text"});
  for (const char* bad : {"list", "step", "large"}) {
    const std::string error = error_of({here / bad});
    EXPECT_NE(error.find("E-DATA-METRICS"), std::string::npos) << error;
  }
  here.write("step/metrics.jsonl", "");
  here.write("step/samples.jsonl", "{\"step\":1}\n{\"prompt\":\"a\"}\n");
  EXPECT_NE(error_of({here / "step"}).find("E-DATA-SAMPLES"), std::string::npos);
  EXPECT_NE(error_of({here / "step"}).find("samples.jsonl:2"), std::string::npos);
}

}  // namespace
}  // namespace tessera::report
