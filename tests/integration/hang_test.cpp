// Ranks that stop in mid-run: the others find out, name them and end.
#include <csignal>

#include "tests/integration/fixture.h"
#include "tests/testing/processes.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

class HangTest : public ProgramTest {
 protected:
  struct Case {
    int ranks, victim;
    Words keys;
  };

  // Stops the victim after some steps; what the job said, and who it was.
  ProgramResult run_with_stopped_rank(const Case& each, pid_t& victim) const {
    fs::remove_all(partial());
    std::vector<pid_t> ranks;
    RunOptions options;
    options.timeout_s = 90.0;
    options.while_running = [&](pid_t root) {
      if (victim != 0 || !fs::exists(partial("metrics.jsonl")) || read_text(partial("metrics.jsonl")).empty())
        return;
      ranks = ranks_below(root);
      if (std::ssize(ranks) != each.ranks) return;
      victim = ranks[each.victim];
      kill(victim, SIGSTOP);
    };
    Words words = {"max_steps=10000000", "ddp_timeout=3", "--nproc", std::to_string(each.ranks)};
    words.insert(words.end(), each.keys.begin(), each.keys.end());
    const ProgramResult result = train(words, options);
    expect_gone(ranks);
    return result;
  }
};

TEST_F(HangTest, AStoppedRankIsNamedUnderEveryAxisOn2And3Ranks) {
  const Case cases[] = {{2, 0, {}},
                        {2, 1, {}},
                        {3, 1, {}},
                        {3, 2, {"zero_stage=1"}},
                        {2, 1, {"tensor_parallel_size=2"}},
                        {2, 0, {"context_parallel_size=2"}},
                        {2, 1, {"pipeline_parallel_size=2"}},
                        {2, 0, {"pipeline_parallel_size=2"}}};
  for (const Case& each : cases) {
    std::string name = std::to_string(each.ranks) + " ranks, rank " + std::to_string(each.victim);
    for (const std::string& key : each.keys) name += " " + key;
    SCOPED_TRACE(name);
    pid_t victim = 0;
    const ProgramResult result = run_with_stopped_rank(each, victim);
    ASSERT_NE(victim, 0) << result.told();
    expect_error(result, 8, "E-HANG-TIMEOUT",
                 {"rank " + std::to_string(each.victim) + " (process " + std::to_string(victim) + " on ",
                  "it is stopped (SIGSTOP)", "out.tessera-hang.json"});
    const auto notes = nlohmann::json::parse(read_text(here / "out.tessera-hang.json"));
    ASSERT_EQ(notes.at("ranks").size(), static_cast<size_t>(each.ranks));
    for (const auto& rank : notes.at("ranks")) {
      EXPECT_EQ(rank.at("stopped"), rank.at("process") == victim);
      EXPECT_GT(rank.at("collectives").size(), 3u);
    }
  }
}

// It takes a while, and then goes on: a run that is only slow is let alone.
TEST_F(HangTest, AShortStopChangesNothing) {
  train_well({"max_steps=60", "--nproc", "2", "output_dir=whole"});
  bool is_done = false;
  RunOptions options;
  options.while_running = [&](pid_t root) {
    if (is_done || !fs::exists(partial("metrics.jsonl")) || read_text(partial("metrics.jsonl")).empty())
      return;
    const auto ranks = ranks_below(root);
    if (ranks.size() != 2) return;
    is_done = true;
    kill(ranks[1], SIGSTOP);
    usleep(1'500'000);
    kill(ranks[1], SIGCONT);
  };
  const ProgramResult result = train({"max_steps=60", "ddp_timeout=60", "--nproc", "2"}, options);
  EXPECT_EQ(result.exit_code, 0) << result.told();
  EXPECT_TRUE(is_done);
  EXPECT_TRUE(read_text(out("model.safetensors")) == read_text(here / "whole/model.safetensors"));
}

TEST_F(HangTest, AHangIsRestarted) {
  bool is_stopped = false;
  RunOptions options;
  options.while_running = [&](pid_t root) {
    if (is_stopped || !fs::exists(out("checkpoint-4"))) return;
    const auto ranks = ranks_below(root);
    if (ranks.size() != 2) return;
    is_stopped = true;
    kill(ranks[0], SIGSTOP);
  };
  const ProgramResult result = train(
      {"max_steps=300", "save_steps=2", "ddp_timeout=3", "--nproc", "2", "--max-restarts", "1"}, options);
  EXPECT_EQ(result.exit_code, 0) << result.told();
  EXPECT_EQ(ProgramResult::lines_with(result.err, "restart 1 of 1, from out/checkpoint-").size(), 1u)
      << result.told();
  EXPECT_EQ(read_metrics(out()).size(), 300u);
}

}  // namespace
}  // namespace tessera::testing
