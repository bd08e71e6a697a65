// Tests of recipes/pretrain.yaml, which starts from a config.json alone: on any number of ranks, and with
// ends of any kind.
#include <filesystem>

#include <signal.h>

#include "tests/integration/fixture.h"
#include "tests/testing/extent.h"
#include "tests/testing/paths.h"
#include "tests/testing/processes.h"
#include "tests/testing/read_faults.h"
#include "tests/testing/skip.h"

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

  // Runs the recipe with six sequences per step, on any number of ranks.
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
    EXPECT_NE(result.err.find("12 steps done, 4,608 tokens seen"), std::string::npos) << result.told();
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
  EXPECT_NE(resumed.err.find("resuming from"), std::string::npos) << resumed.told();
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

// One rank reads the logs of the run for a checkpoint. Where it cannot, all save once more.
TEST_F(PretrainTest, ALogThatCannotBeReadForACheckpointIsToldOn2Ranks) {
  if (kHasSanitizer) GTEST_SKIP() << skip::kSanitizer;
  const ProgramResult result =
      pretrain(2, "out", {}, with_read_fault(here.path(), "0", 1, "EIO", "metrics.jsonl"));
  ASSERT_EQ(result.exit_code, 0) << result.told();
  EXPECT_NE(result.err.find("could not be saved; the current state is saved instead"), std::string::npos)
      << result.told();
  EXPECT_TRUE(fs::exists(out("model.safetensors")));
}

// The disk fails, or gives fewer bytes than it has, at any of the reads of a run that streams; then the same
// command runs on a disk that works.
TEST_F(PretrainTest, AReadThatFailsInMidStreamIsToldAndTheRunGoesOnOn1And2Ranks) {
  if (kHasSanitizer) GTEST_SKIP() << skip::kSanitizer;
  Random random;
  Words steps = {"max_steps=60", "lr_scheduler=constant"};
  const fs::path build = fs::path(program_path()).parent_path();
  if (fs::exists(build / "tessera-tables.so")) {
    for (const char* name : {"rows.parquet", "stream.arrow"}) {
      fs::copy(source_folder() + "/tests/reference/data/tables/" + name, here / name);
      const std::string entry = "pretraining_dataset." + std::to_string(steps.size() / 2 + 1);
      // The files between them hold text.
      steps = with(steps, {entry + ".path=" + name, entry + ".split=train[1:35]"});
    }
  }
  for (const int ranks : some_of<int>({1, 2}, 1, random)) {
    const std::string whole = "whole" + std::to_string(ranks);
    const ProgramResult undisturbed = pretrain(ranks, whole, steps);
    ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.told();
    const auto with_fault = [&](const std::string& rank, int64_t number, const std::string& fault) {
      fs::remove_all(out());
      fs::remove_all(partial());
      return pretrain(ranks, "out", steps, with_read_fault(here.path(), rank, number, fault));
    };
    const auto expect_whole = [&](const ProgramResult& result) {
      ASSERT_EQ(result.exit_code, 0) << result.told();
      EXPECT_TRUE(read_text(out("model.safetensors")) == read_text(here / (whole + "/model.safetensors")));
      EXPECT_EQ(losses(out()), losses(here / whole));
    };
    for (const std::string& rank : ranks == 1 ? Words{"none"} : Words{"0", "1"}) {
      fs::remove(here / "count");
      expect_whole(with_fault(rank, 0, "count"));
      const int64_t count = std::stoll(read_text(here / "count"));
      ASSERT_GT(count, 5);  // ranks share the reading
      for (const std::string& fault : some_of(Words{"EIO", "end", "short"}, 1, random)) {
        const int64_t number = random.in(1, count);
        SCOPED_TRACE(std::to_string(ranks) + " ranks, rank " + rank + ", read " + std::to_string(number) +
                     " of " + std::to_string(count) + ": " + fault);
        const ProgramResult result = with_fault(rank, number, fault);
        if (result.exit_code != 0) {
          EXPECT_NE(fault, "short") << "what comes in two pieces is whole: " << result.told();
          EXPECT_GE(result.exit_code, 2) << result.told();
          EXPECT_LE(result.exit_code, 6) << result.told();
          expect_error(result, result.exit_code, "E-", {});
          const auto is_named = [&](const char* file) { return result.err.find(file) != std::string::npos; };
          EXPECT_TRUE(is_named("model/") || is_named("code.jsonl") || is_named("rows.parquet") ||
                      is_named("stream.arrow"))
              << result.told();
          expect_whole(pretrain(ranks, "out", steps));
        } else {
          expect_whole(result);
        }
      }
    }
  }
}

// All ranks end before one of them has used other text than the others.
TEST_F(PretrainTest, AFileThatChangesInMidStreamEndsTheRunWithItsNameOn1And2Ranks) {
  const std::string file = here / "code.jsonl", text = read_text(file);
  const Words steps = {"lr_scheduler=constant"};
  Random random;
  for (const int ranks : some_of<int>({1, 2}, 1, random)) {
    fs::remove_all(out());
    int64_t last = 0;
    const Words all = {"touch", "cut", "other", "longer", "removed"}, two = {"cut", "removed"};
    for (const std::string& change : ranks == 1 ? some_of(all, 2, random) : some_of(two, 1, random)) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks: " + change);
      bool is_changed = false, is_stopped = false;
      const int64_t before = newest();
      RunOptions options;
      options.while_running = [&](pid_t root) {
        if (newest() < before + 6) return;
        // A new time alone is no change.
        if (is_changed && !is_stopped && change == "touch" && newest() > last + 60) {
          kill(root, SIGTERM);
          is_stopped = true;
        }
        if (is_changed) return;
        is_changed = true;
        last = newest();
        if (change == "touch") fs::last_write_time(file, fs::file_time_type::clock::now());
        if (change == "cut") fs::resize_file(file, text.size() / 2);
        if (change == "other") write_text(file, std::string(text).replace(10, 1, "9"));
        if (change == "longer") write_text(file, text + text);
        if (change == "removed") fs::remove(file);
      };
      const ProgramResult result = pretrain(ranks, "out", with(steps, {"max_steps=1000000"}), options);
      ASSERT_TRUE(is_changed) << result.told();
      if (change == "touch") {
        EXPECT_EQ(result.exit_code, 75) << result.told();
      } else if (change == "removed") {
        expect_error(result, 6, "E-STORAGE-", {"code.jsonl"});
      } else {
        EXPECT_TRUE(result.exit_code == 3 || result.exit_code == 6) << result.told();
        expect_error(result, result.exit_code, "E-", {"code.jsonl"});
      }
      write_text(file, text);
    }
    const Words rest = with(steps, {"max_steps=" + std::to_string(newest() + 5)});
    const std::string whole = "whole" + std::to_string(ranks);
    ASSERT_EQ(pretrain(ranks, "out", rest).exit_code, 0);
    ASSERT_EQ(pretrain(ranks, whole, rest).exit_code, 0);
    EXPECT_TRUE(read_text(out("model.safetensors")) == read_text(here / (whole + "/model.safetensors")));
    EXPECT_EQ(losses(out()), losses(here / whole));
  }
}

TEST_F(PretrainTest, RefusesOtherDataInACheckpointsPlace) {
  ASSERT_EQ(pretrain(1, "out", {"max_steps=3"}).exit_code, 0);
  write_text(here / "code.jsonl", "{\"code\": \"another text\"}\n");
  expect_error(pretrain(1, "out"), 3, "E-DATA-CHANGED", {"checkpoint-3"});
  EXPECT_EQ(pretrain(1, "out", {"allow_data_change=true"}).exit_code, 0);
}

}  // namespace
}  // namespace tessera::testing
