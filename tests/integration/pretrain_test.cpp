// recipes/pretrain.yaml from a config.json alone: any number of ranks, ends of any kind.
#include <filesystem>

#include <signal.h>

#include "tests/integration/fixture.h"
#include "tests/testing/paths.h"
#include "tests/testing/processes.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

class PretrainTest : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    fs::remove(model() + "/model.safetensors");
    std::string code;
    for (int i = 0; i < 200; ++i)
      code +=
          nlohmann::json{{"code", "f" + std::to_string(i) + "(x) = x * " + std::to_string(i)}}.dump() + "\n";
    write_text(here / "code.jsonl", code);
  }

  // Six sequences a step, on any number of ranks.
  ProgramResult pretrain(int ranks, const std::string& output, const Words& more = {},
                         const RunOptions& options = {}) const {
    const Words words = {"train",
                         source_folder() + "/recipes/pretrain.yaml",
                         "base_model=model",
                         "pretraining_dataset.1.path=code.jsonl",
                         "pretraining_dataset.1.text_column=code",
                         "pretraining_dataset.1.weight=0.5",
                         "sequence_len=64",
                         "dtype=float64",
                         "micro_batch_size=1",
                         "gradient_accumulation_steps=" + std::to_string(6 / ranks),
                         "max_steps=12",
                         "save_steps=3",
                         "logging_steps=1",
                         "output_dir=" + output,
                         "--nproc",
                         std::to_string(ranks)};
    return run(with(words, more), options);
  }
};

TEST_F(PretrainTest, EqualsOneProcessOn2And3Ranks) {
  std::vector<std::vector<double>> losses;
  for (const int ranks : {1, 2, 3}) {
    const std::string name = "ranks" + std::to_string(ranks);
    const ProgramResult result = pretrain(ranks, name);
    ASSERT_EQ(result.exit_code, 0) << result.told();
    EXPECT_TRUE(result.error_lines().empty()) << result.told();
    EXPECT_NE(result.err.find("12 steps made, 4608 tokens seen"), std::string::npos) << result.told();
    EXPECT_NE(result.err.find("% for data"), std::string::npos) << result.told();
    losses.push_back(read_column(here / name, "loss"));
    const auto lines = read_metrics(here / name);
    ASSERT_EQ(lines.size(), 12U);
    for (size_t i = 0; i < lines.size(); ++i) {
      EXPECT_EQ(lines[i].at("tokens_seen"), static_cast<int64_t>(i + 1) * 6 * 64);
      EXPECT_GE(lines[i].at("data_wait_s"), 0.0);
      EXPECT_TRUE(lines[i].at("losses").contains("docs") || lines[i].at("losses").contains("code"));
    }
    for (size_t i = 0; i < losses[0].size(); ++i)
      EXPECT_NEAR(losses.back()[i], losses[0][i], 1e-10 * losses[0][i]) << "step " << i << " on " << ranks;
  }
}

TEST_F(PretrainTest, GoesOnBitwiseAfterAKillOn3RanksAndOn2) {
  const Words steps = {"max_steps=60"};
  const ProgramResult whole = pretrain(3, "whole", steps);
  ASSERT_EQ(whole.exit_code, 0) << whole.told();
  bool is_killed = false;
  std::vector<pid_t> killed;
  RunOptions options;
  options.while_running = [&](pid_t root) {
    if (is_killed || newest() < 6) return;
    is_killed = true;
    for (const auto& [process, command] : processes_below(root)) killed.push_back(process);
    for (const pid_t process : killed) kill(process, SIGKILL);
    kill(root, SIGKILL);
  };
  ASSERT_NE(pretrain(3, "out", steps, options).exit_code, 0);
  ASSERT_TRUE(is_killed);
  expect_gone(killed);
  ASSERT_LT(newest(), 60);
  fs::copy(out(), here / "other", fs::copy_options::recursive);

  const ProgramResult resumed = pretrain(3, "out", steps);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.told();
  EXPECT_NE(resumed.err.find("going on from"), std::string::npos) << resumed.told();
  EXPECT_TRUE(read_text(out("model.safetensors")) == read_text(here / "whole/model.safetensors"));
  EXPECT_EQ(losses(out()), losses(here / "whole"));

  const ProgramResult on_two = pretrain(2, "other", steps);
  ASSERT_EQ(on_two.exit_code, 0) << on_two.told();
  const auto want = losses(here / "whole"), got = losses(here / "other");
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i].second, want[i].second, 1e-9 * want[i].second) << "step " << i;
}

// A record that one rank tokenises ends all of them in one line, well before the last step.
TEST_F(PretrainTest, ABadRecordEndsAll3Ranks) {
  write_text(here / "code.jsonl", read_text(here / "code.jsonl") + "{\"code\": [7]}\n");
  expect_error(pretrain(3, "out", {"max_steps=2000", "save_steps=1000"}), 3, "E-DATA-FIELD-TYPE",
               {"code.jsonl:201"});
}

TEST_F(PretrainTest, RefusesOtherDataInACheckpointsPlace) {
  ASSERT_EQ(pretrain(1, "out", {"max_steps=3"}).exit_code, 0);
  write_text(here / "code.jsonl", "{\"code\": \"another text\"}\n");
  expect_error(pretrain(1, "out"), 3, "E-DATA-CHANGED", {"checkpoint-3"});
  EXPECT_EQ(pretrain(1, "out", {"allow_data_change=true"}).exit_code, 0);
}

}  // namespace
}  // namespace tessera::testing
