// Tests of ranks that stop in mid-run: the others notice it, name them and end.
#include <csignal>

#include "tests/integration/fixture.h"
#include "tests/testing/extent.h"
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

  // Stops a rank after some steps. Returns the output of the job, and the rank's process in `victim`.
  ProgramResult run_with_stopped_rank(const Case& each, pid_t& victim) const {
    ProgramResult result;
    // On a machine that is busy elsewhere a rank may seem to hang before the victim is stopped.
    for (int timeout_s = 3; timeout_s <= 27 && victim == 0; timeout_s *= 3) {
      fs::remove_all(partial());
      std::vector<pid_t> ranks;
      RunOptions options;
      options.timeout_s = 120.0;
      options.while_running = [&](pid_t root) {
        if (victim != 0 || num_steps() == 0) return;
        ranks = ranks_below(root);
        if (std::ssize(ranks) != each.ranks) return;
        victim = ranks[each.victim];
        kill(victim, SIGSTOP);
      };
      result = train(with({"max_steps=10000000", "ddp_timeout=" + std::to_string(timeout_s), "--nproc",
                           std::to_string(each.ranks)},
                          each.keys),
                     options);
      expect_gone(ranks);
    }
    return result;
  }

  // Expects that a rank which is stopped more and more of the time is named as slow, as if its machine had
  // too much to do. The share of time grows because on a machine that is busy all ranks are slow.
  void expect_slow_rank_named(const Words& keys, int ranks, const std::string& what) const {
    pid_t victim = 0;
    int looks = 0, stops = 0;
    size_t steps_when_told = 0;
    RunOptions options;
    options.while_talking = [&](pid_t root, const std::string& err) {
      if (victim == 0) {
        if (num_steps() < 3) return;
        const auto found = ranks_below(root);
        if (std::ssize(found) == ranks) victim = found[1];
        return;
      }
      const bool is_told = err.find("slows down the other ranks") != std::string::npos;
      const bool is_stopped = !is_told && looks++ < std::min(3 + stops / 100, 12);
      kill(victim, is_stopped ? SIGSTOP : SIGCONT);
      if (is_stopped) return;
      looks = 0;
      ++stops;
      if (!is_told) return;
      if (steps_when_told == 0) steps_when_told = num_steps();
      if (num_steps() > steps_when_told + 20) kill(root, SIGTERM);
    };
    const ProgramResult result =
        train(with({"max_steps=100000000", "--nproc", std::to_string(ranks)}, keys), options);
    EXPECT_EQ(result.exit_code, 143) << result.told();
    const Words told = ProgramResult::lines_with(result.err, "slows down the other ranks");
    ASSERT_EQ(told.size(), 1u) << result.told();
    EXPECT_NE(told[0].find("tessera: warning: rank 1 (process " + std::to_string(victim) + " on "),
              std::string::npos)
        << told[0];
    EXPECT_NE(told[0].find("slows down the other ranks: " + what + " takes "), std::string::npos) << told[0];
    EXPECT_NE(told[0].find("mostly in section '"), std::string::npos) << told[0];
    int64_t lines = 0;
    for (const auto& line : read_metrics(partial())) {
      if (!line.contains("straggler")) continue;
      EXPECT_EQ(line["straggler"]["rank"], 1);
      EXPECT_GE(line["straggler"]["slowdown"], 1.5);
      ++lines;
    }
    EXPECT_GT(lines, 0);
  }
};

TEST_F(HangTest, AStoppedRankIsNamedUnderEveryAxisOn2And3Ranks) {
  const std::vector<Case> cases = {{2, 0, {}},
                                   {2, 1, {}},
                                   {3, 1, {}},
                                   {3, 2, {"zero_stage=1"}},
                                   {2, 1, {"tensor_parallel_size=2"}},
                                   {2, 0, {"context_parallel_size=2"}},
                                   {2, 1, {"pipeline_parallel_size=2"}},
                                   {2, 0, {"pipeline_parallel_size=2"}}};
  Random random;
  for (const Case& each : some_of(cases, 2, random)) {
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

// A rank stops for a while and then goes on: a run that is only slow is left alone.
TEST_F(HangTest, AShortStopChangesNothing) {
  train_well({"max_steps=600", "--nproc", "2", "output_dir=whole"});
  bool is_done = false;
  RunOptions options;
  options.while_running = [&](pid_t root) {
    if (is_done || num_steps() == 0) return;
    const auto ranks = ranks_below(root);
    if (ranks.size() != 2 || !hold(ranks[1])) return;
    is_done = true;
    usleep(1'500'000);
    kill(ranks[1], SIGCONT);
  };
  const ProgramResult result = train({"max_steps=600", "ddp_timeout=60", "--nproc", "2"}, options);
  EXPECT_EQ(result.exit_code, 0) << result.told();
  EXPECT_TRUE(is_done);
  EXPECT_TRUE(read_text(out("model.safetensors")) == read_text(here / "whole/model.safetensors"));
}

TEST_F(HangTest, ASlowRankOf3IsNamedAndTheRunGoesOn) { expect_slow_rank_named({}, 3, "a step"); }

// Each of the two ranks is alone in its stage.
TEST_F(HangTest, ASlowStageOf2IsNamedAndTheRunGoesOn) {
  write_tiny_model(here / "deep", {.hidden = 96, .layers = 8, .intermediate = 160});
  expect_slow_rank_named({"base_model=deep", "pipeline_parallel_size=2", "gradient_accumulation_steps=2"}, 2,
                         "the forward of a layer");
}

TEST_F(HangTest, AHangIsRestarted) {
  bool is_stopped = false;
  RunOptions options;
  options.while_running = [&](pid_t root) {
    if (is_stopped || newest() < 4 || newest() > 200) return;
    const auto ranks = ranks_below(root);
    if (ranks.size() != 2) return;
    is_stopped = true;
    kill(ranks[0], SIGSTOP);
  };
  const ProgramResult result = train(
      {"max_steps=300", "save_steps=2", "ddp_timeout=10", "--nproc", "2", "--max-restarts", "1"}, options);
  EXPECT_EQ(result.exit_code, 0) << result.told();
  EXPECT_EQ(ProgramResult::lines_with(result.err, "restart 1 of 1, from out/checkpoint-").size(), 1u)
      << result.told();
  EXPECT_EQ(read_metrics(out()).size(), 300u);
}

}  // namespace
}  // namespace tessera::testing
