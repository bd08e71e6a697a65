// Tests of pipelines through the whole program: training, evaluation, packing, adapters, saved results, and
// settings that are refused.
#include <fstream>

#include "tests/integration/fixture.h"
#include "tests/testing/extent.h"

namespace tessera::testing {
namespace {

// Returns the numbers of one key, from those lines of metrics.jsonl that have it.
std::vector<double> numbers(const std::string& folder, const std::string& key) {
  std::ifstream file(folder + "/metrics.jsonl");
  std::vector<double> values;
  for (std::string line; std::getline(file, line);) {
    const auto parsed = nlohmann::json::parse(line);
    if (parsed.contains(key)) values.push_back(parsed.at(key));
  }
  return values;
}

class PipelineTest : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    std::filesystem::remove_all(model());
    write_tiny_model(model(), {.layers = 5});
  }

  void train_into(const std::string& folder, const Words& same, const Words& more) {
    Words arguments = same;
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.insert(arguments.end(), {"dtype=float64", "max_steps=3", "output_dir=" + folder});
    train_well(arguments);
  }

  void expect_same_run(const std::string& folder) {
    for (const char* key : {"loss", "grad_norm", "tokens", "label_tokens", "eval_loss"}) {
      const auto want = numbers(here / "one", key), got = numbers(here / folder, key);
      ASSERT_EQ(got.size(), want.size()) << key << " in " << folder;
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(got[i], want[i], 1e-10 * want[i]) << key << " " << i << " in " << folder;
      }
    }
  }

  void expect_same_logits(const std::vector<float>& got, const std::vector<float>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5) << i;
  }
};

TEST_F(PipelineTest, EveryScheduleOn2RanksEqualsOneProcess) {
  const Words same = {"sample_packing=true", "sequence_len=96", "val_set_size=5", "eval_steps=2",
                      "gradient_accumulation_steps=3"};
  train_into("one", same, {});
  ASSERT_FALSE(numbers(here / "one", "eval_loss").empty());
  const auto want = logits("one");
  Random random;
  const Words schedules = {"gpipe", "1f1b", "interleaved", "zero_bubble"};
  for (const std::string& schedule : some_of(schedules, 2, random)) {
    train_into(schedule, same, {"pipeline_parallel_size=2", "pipeline_schedule=" + schedule, "--nproc", "2"});
    expect_same_run(schedule);
    expect_same_logits(logits(schedule), want);
  }
}

TEST_F(PipelineTest, AnAdapterOn2StagesOf2ShardsEqualsOneProcess) {
  const Words same = {"adapter=lora", "lora_target_linear=true", "lora_r=3"};
  train_into("one", same, {"gradient_accumulation_steps=8", "micro_batch_size=1"});
  train_into("four", same,
             {"gradient_accumulation_steps=2", "pipeline_microbatches=4", "pipeline_parallel_size=2",
              "pipeline_schedule=zero_bubble", "gradient_checkpointing=true", "--nproc", "4"});
  expect_same_run("four");
  expect_same_logits(logits("model", "four"), logits("model", "one"));
}

// The stages are uneven, and the last one has the embedding as its output projection.
TEST_F(PipelineTest, ThreeRanksOf5Layers) {
  const Words same = {"gradient_accumulation_steps=2"};
  train_into("one", same, {});
  train_into("three", same, {"pipeline_parallel_size=3", "zero_stage=1", "--nproc", "3"});
  expect_same_run("three");
  train_into("split", same, {"pipeline_parallel_size=3", "pipeline_split=[1,3,1]", "--nproc", "3"});
  expect_same_run("split");
}

// Measured times differ from run to run: the split is told, and kept for a run that repeats this one.
TEST_F(PipelineTest, StagesByMeasuredTimeEqualOneProcess) {
  const Words same = {"gradient_accumulation_steps=4", "gradient_checkpointing=true"};
  train_into("one", same, {});
  const Words stages = {"dtype=float64", "max_steps=3", "output_dir=timed",        "pipeline_split_by=time",
                        "--nproc",       "3",           "pipeline_parallel_size=3"};
  const ProgramResult result = train(with(same, stages));
  ASSERT_EQ(result.exit_code, 0) << result.told();
  EXPECT_NE(result.err.find("pipeline: "), std::string::npos) << result.told();
  EXPECT_NE(result.err.find(" ms of a micro-batch (embedding "), std::string::npos) << result.told();
  expect_same_run("timed");
  const std::string recipe = read_text(here / "timed/recipe.yaml");
  EXPECT_NE(recipe.find("pipeline_split: ["), std::string::npos) << recipe;
  EXPECT_EQ(recipe.find("pipeline_split_by: \"time\""), std::string::npos) << recipe;
  run_well({"train", "timed/recipe.yaml", "output_dir=again", "--nproc", "3"});
  EXPECT_EQ(numbers(here / "again", "loss"), numbers(here / "timed", "loss"));
  train_into("turns", same,
             {"pipeline_parallel_size=2", "pipeline_schedule=interleaved", "pipeline_split_by=time",
              "--nproc", "2"});
  expect_same_run("turns");
  expect_error(
      train({"pipeline_parallel_size=2", "pipeline_split=[2,3]", "pipeline_split_by=time", "--nproc", "2"}),
      2, "E-CONFIG-CONFLICT", {"'pipeline_split' and 'pipeline_split_by'"});
}

TEST_F(PipelineTest, WhatCannotBeCutIsRefusedWithWhatCan) {
  expect_error(train({"pipeline_parallel_size=2", "--nproc", "3"}), 2, "E-CONFIG-PARALLELISM",
               {"pipeline_parallel_size 2 and 3 ranks"});
  expect_error(train({"pipeline_parallel_size=6", "--nproc", "6"}), 2, "E-CONFIG-PIPELINE",
               {"6 ranks and 5 layers", "hint: pipeline_parallel_size: 5"});
  expect_error(train({"pipeline_parallel_size=3", "pipeline_schedule=interleaved", "--nproc", "3"}), 2,
               "E-CONFIG-PIPELINE", {"3 ranks with 2 stages each", "hint: pipeline_stages_per_rank: 1"});
  expect_error(train({"pipeline_parallel_size=2", "pipeline_split=[2,2]", "--nproc", "2"}), 2,
               "E-CONFIG-PIPELINE",
               {"got [2, 2], need 2 numbers from 1, one for each stage, that add up to the 5 layers",
                "hint: a split by work would be ["});
  expect_error(train({"pipeline_parallel_size=2", "pipeline_microbatches=3", "--nproc", "2"}), 2,
               "E-CONFIG-RANGE", {"need a divisor of 2", "hint: pipeline_microbatches: 2"});
}

}  // namespace
}  // namespace tessera::testing
