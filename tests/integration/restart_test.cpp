// `--max-restarts`: jobs that lose a rank and go on by themselves.
#include <csignal>
#include <random>

#include "tessera/io/checkpoint_folders.h"

#include "tests/integration/fixture.h"
#include "tests/testing/processes.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

class RestartTest : public ProgramTest {
 protected:
  static Words with(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  int64_t newest() const {
    const auto found = io::list_checkpoints(out());
    return found.empty() ? 0 : found.front().step;
  }
  size_t num_lines() const { return ProgramResult::lines(read_text(partial("metrics.jsonl"))).size(); }
  static std::vector<pid_t> ranks_of(pid_t root, int ranks) {
    if (ranks > 1) return ranks_below(root);
    std::vector<pid_t> found;
    for (const auto& [id, command] : processes_below(root)) found.push_back(id);
    return found;
  }
  std::vector<std::pair<int64_t, double>> losses(const std::string& folder) const {
    std::vector<std::pair<int64_t, double>> losses;
    for (const auto& line : read_metrics(folder)) losses.emplace_back(line.at("step"), line.at("loss"));
    return losses;
  }
  static Words restarts(const ProgramResult& result) {
    return ProgramResult::lines_with(result.err, "tessera: warning: restart ");
  }
};

TEST_F(RestartTest, AJobThatLosesRanksEndsWithTheSameBytesOn1And2And3Ranks) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (const int ranks : {1, 2, 3}) {
    SCOPED_TRACE(ranks);
    const std::string whole = "whole" + std::to_string(ranks), count = std::to_string(ranks);
    train_well({"max_steps=40", "--nproc", count, "output_dir=" + whole});
    fs::remove_all(out());
    constexpr size_t kKills = 3;
    std::vector<int64_t> killed_at;
    std::vector<pid_t> last;
    RunOptions options;
    options.while_running = [&](pid_t root) {
      const auto found = ranks_of(root, ranks);
      if (killed_at.size() == kKills || std::ssize(found) != ranks || found == last) return;
      const int64_t at = killed_at.empty() ? 1 : killed_at.back() + 4;
      if (newest() < std::min<int64_t>(at, 30)) return;
      usleep(static_cast<useconds_t>(random() % 20000));
      kill(found[random() % found.size()], SIGKILL);
      killed_at.push_back(newest());
      last = found;
    };
    const ProgramResult result = train({"max_steps=40", "save_steps=2", "overwrite_output_dir=false",
                                        "--nproc", count, "--max-restarts", "5"},
                                       options);
    ASSERT_EQ(result.exit_code, 0) << result.told();
    EXPECT_TRUE(result.error_lines().empty()) << result.told();
    ASSERT_EQ(killed_at.size(), kKills) << result.told();
    const Words told = restarts(result);
    ASSERT_EQ(told.size(), kKills) << result.told();
    for (const std::string& line : told) {
      EXPECT_NE(line.find("from out/checkpoint-"), std::string::npos) << line;
      EXPECT_NE(line.find("was ended by signal 9 (Killed): process "), std::string::npos) << line;
    }
    EXPECT_TRUE(read_text(out("model.safetensors")) == read_text(here / (whole + "/model.safetensors")));
    EXPECT_EQ(losses(out()), losses(here / whole));
  }
}

TEST_F(RestartTest, ThreeStartsFromOneCheckpointWithoutProgressEndTheJob) {
  const Words saving = {"save_steps=1000000", "auto_resume_from_checkpoints=true",
                        "overwrite_output_dir=false", "--nproc", "2"};
  train_well(with(saving, {"max_steps=3"}));
  int kills = 0;
  std::vector<pid_t> last;
  RunOptions options;
  options.while_running = [&](pid_t root) {
    const auto found = ranks_below(root);
    if (found.size() != 2 || found == last) return;
    kill(found[1], SIGKILL);
    last = found;
    ++kills;
  };
  const ProgramResult result = train(with(saving, {"max_steps=1000000", "--max-restarts", "9"}), options);
  expect_error(result, 5, "E-CKPT-CRASH-LOOP", {"out/checkpoint-3", "3 starts", "rank 1"});
  EXPECT_EQ(kills, 3);
  EXPECT_EQ(restarts(result).size(), 2u) << result.told();
  EXPECT_EQ(newest(), 3);
}

TEST_F(RestartTest, WhatWillComeAgainOrWasAskedForIsNotStartedAgain) {
  const Words restarting = {"save_steps=2", "--nproc", "2", "--max-restarts", "4"};
  write_text(here / "bad.jsonl", "{\"input_ids\": [1, 2\n");
  const ProgramResult bad = train(with(restarting, {"datasets.0.path=bad.jsonl"}));
  expect_error(bad, 3, "E-DATA-JSON", {"bad.jsonl:1:"});
  EXPECT_TRUE(restarts(bad).empty()) << bad.told();
  const ProgramResult diverged =
      train(with(restarting, {"learning_rate=1e3", "weight_decay=1e3", "max_steps=50"}));
  expect_error(diverged, 7, "E-NUMERICS", {"step"});
  EXPECT_TRUE(restarts(diverged).empty()) << diverged.told();
  expect_error(train({"--nproc", "2", "--max-restarts", "4"}), 2, "E-CONFIG-RESTARTS", {"save_steps"});

  bool is_sent = false;
  RunOptions options;
  options.while_running = [&](pid_t id) {
    if (is_sent || newest() < 4) return;
    is_sent = true;
    kill(id, SIGTERM);
  };
  fs::remove_all(out());
  const ProgramResult stopped = train(with(restarting, {"max_steps=1000000"}), options);
  EXPECT_EQ(stopped.exit_code, 75) << stopped.told();
  EXPECT_TRUE(restarts(stopped).empty()) << stopped.told();
}

// The checkpoints of an older result are another run's.
TEST_F(RestartTest, ARestartNeverGoesOnFromAnotherRun) {
  train_well({"max_steps=6", "save_steps=3", "seed=7"});
  train_well({"max_steps=5", "output_dir=whole"});
  bool is_killed = false;
  RunOptions options;
  options.while_running = [&](pid_t root) {
    const auto found = ranks_of(root, 1);
    if (is_killed || found.size() != 1 || !fs::exists(partial("metrics.jsonl"))) return;
    kill(found[0], SIGKILL);
    is_killed = true;
  };
  const ProgramResult result = train({"max_steps=5", "save_steps=1000", "--max-restarts", "2"}, options);
  ASSERT_EQ(result.exit_code, 0) << result.told();
  ASSERT_EQ(restarts(result).size(), 1u) << result.told();
  EXPECT_NE(restarts(result)[0].find("from the beginning"), std::string::npos) << result.told();
  EXPECT_TRUE(read_text(out("model.safetensors")) == read_text(here / "whole/model.safetensors"));
}

// A rank that is stopped before it has met the others is named within the time to start.
TEST_F(RestartTest, ARankThatDoesNotStartIsNamed) {
  std::vector<pid_t> stopped;
  RunOptions options;
  options.environment["TESSERA_START_TIMEOUT"] = "3";
  options.while_running = [&](pid_t root) {
    if (!stopped.empty()) return;
    const auto found = ranks_below(root);
    if (found.size() != 3) return;
    kill(found[1], SIGSTOP);
    stopped = found;
  };
  const ProgramResult result = train({"max_steps=1000000", "--nproc", "3"}, options);
  expect_error(result, 9, "E-PEER-LAUNCHER", {"of 3 ranks", "rank 1"});
  expect_gone(stopped);
}

}  // namespace
}  // namespace tessera::testing
