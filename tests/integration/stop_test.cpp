// Tests of runs that are asked from outside to stop or to save, as users and batch systems do it.
#include <csignal>

#include "tests/integration/fixture.h"
#include "tests/testing/extent.h"
#include "tests/testing/processes.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

class StopTest : public ProgramTest {
 protected:
  static constexpr int kSteps = 40;

  // Returns the arguments of a run that saves only when it is asked to, and at its end.
  Words run_of(int ranks, const Words& more = {}) const {
    return with({"max_steps=" + std::to_string(kSteps), "save_steps=1000", "overwrite_output_dir=false",
                 "auto_resume_from_checkpoints=true", "--nproc", std::to_string(ranks)},
                more);
  }
  bool has_steps(size_t count) const { return num_steps() >= count; }
  void expect_same_result(const std::string& want) const {
    EXPECT_TRUE(read_text(out("model.safetensors")) == read_text(here / (want + "/model.safetensors")));
    EXPECT_EQ(losses(out()), losses(here / want));
  }
  void clear() const {
    fs::remove_all(out());
    fs::remove_all(partial());
  }
};

// Sends the signal to the program, to one rank or to all of them, at random moments; then runs the same
// command again.
TEST_F(StopTest, AStoppedRunSavesAndGoesOnOn1And2And3Ranks) {
  Random random;
  for (const int ranks : some_of<int>({1, 2, 3}, 1, random)) {
    const std::string whole = "whole" + std::to_string(ranks);
    train_well(run_of(ranks, {"output_dir=" + whole}));
    clear();
    for (bool has_ended = false; !has_ended;) {
      const int64_t before = newest();
      const int signal = random.in(0, 1) == 0 ? SIGINT : SIGTERM;
      const int64_t to = random.in(0, 2);
      // A run of all cases is stopped about twice as often.
      const int64_t steps = runs_all_cases() ? random.in(3, 10) : random.in(6, 17);
      const auto after = static_cast<size_t>(before + steps);
      SCOPED_TRACE(std::to_string(ranks) + " ranks, after step " + std::to_string(before) + ", signal " +
                   std::to_string(signal) + " to " + std::to_string(to));
      bool is_sent = false;
      RunOptions options;
      options.while_running = [&](pid_t id) {
        if (is_sent || !has_steps(after)) return;
        const auto all = ranks_below(id);
        const bool has_ranks = std::ssize(all) == ranks && ranks > 1;
        is_sent = true;
        if (to == 0 || !has_ranks) {
          kill(id, signal);
        } else if (to == 1) {
          kill(all[random.in(0, std::ssize(all) - 1)], signal);
        } else {
          // Every process gets the signal, as a batch system signals a job.
          for (const auto& [process, command] : processes_below(id)) kill(process, signal);
          kill(id, signal);
        }
      };
      const ProgramResult result = train(run_of(ranks), options);
      has_ended = result.exit_code == 0;
      if (has_ended) continue;
      ASSERT_TRUE(is_sent) << result.told();
      ASSERT_EQ(result.exit_code, 75) << result.told();
      EXPECT_TRUE(result.error_lines().empty()) << result.told();
      EXPECT_GT(newest(), before) << result.told();
      const std::string step = std::to_string(newest());
      EXPECT_EQ(ProgramResult::lines_with(result.err, "stopped after step " + step + " by SIG").size(), 1u)
          << result.told();
      EXPECT_EQ(ProgramResult::lines_with(result.err, " saved: ").size(), 1u) << result.told();
    }
    expect_same_result(whole);
  }
}

TEST_F(StopTest, AskedTwiceARunEndsAtOnceAndKeepsTheOlderCheckpointOn1And3Ranks) {
  // Steps take so long that both requests come within one.
  write_text(here / "rows.jsonl", tiny_rows(3000));
  const Words slow = {"micro_batch_size=1", "gradient_accumulation_steps=400", "save_steps=1",
                      "async_save=false"};
  Random random;
  for (const int ranks : some_of<int>({1, 3}, 1, random)) {
    SCOPED_TRACE(ranks);
    ProgramResult result;
    // The first request may come while the checkpoint is saved, which is then all that there is to save.
    for (int attempt = 0; attempt < 5 && (attempt == 0 || result.exit_code == 75); ++attempt) {
      clear();
      int sent = 0, looks = 0;
      RunOptions options;
      // The second signal is sent when the first one is handled: the kernel keeps one pending signal of a
      // kind.
      options.while_talking = [&](pid_t id, const std::string& err) {
        const auto has_said = [&](const char* text) { return err.find(text) != std::string::npos; };
        const bool is_due =
            sent == 0 ? has_said(" saved: ") && ++looks > 10 : has_said("the run saves a checkpoint");
        if (sent == 2 || !is_due) return;
        kill(id, SIGINT);
        ++sent;
      };
      result = train(run_of(ranks, with(slow, {"max_steps=1000000"})), options);
    }
    EXPECT_TRUE(ranks == 1 ? result.signal == SIGINT : result.exit_code == 130) << result.told();
    EXPECT_TRUE(result.error_lines().empty()) << result.told();
    EXPECT_NE(result.err.find("stays in out"), std::string::npos) << result.told();
    EXPECT_EQ(result.err.find("stopped after step"), std::string::npos) << result.told();
    const int64_t step = newest();
    ASSERT_GE(step, 1);
    train_well(run_of(ranks, with(slow, {"max_steps=" + std::to_string(step + 1)})));
    EXPECT_EQ(losses(out()).size(), static_cast<size_t>(step + 1));
  }
}

TEST_F(StopTest, SavesOnRequestAndGoesOnOn1And2Ranks) {
  // The run ends only when it is stopped, so the request cannot come too late.
  const Words endless = {"max_steps=1000000", "save_steps=1000000", "output_dir=out/"};
  struct Case {
    int ranks;
    bool by_file;
  };
  const std::vector<Case> cases = {{1, false}, {1, true}, {2, false}, {2, true}};
  Random random;
  for (const Case& each : some_of(cases, 2, random)) {
    const int ranks = each.ranks;
    const bool by_file = each.by_file;
    SCOPED_TRACE(std::to_string(ranks) + (by_file ? " by file" : " by signal"));
    clear();
    fs::remove_all(here / "next");
    bool is_asked = false, is_stopped = false;
    size_t steps_when_saved = 0;
    RunOptions options;
    options.while_talking = [&](pid_t id, const std::string& err) {
      if (!is_asked && has_steps(3)) {
        is_asked = true;
        if (by_file) {
          write_text(here / "out.tessera-save", "");
        } else {
          kill(id, SIGUSR1);
        }
      }
      if (is_stopped || err.find(" saved: ") == std::string::npos) return;
      if (steps_when_saved == 0) steps_when_saved = num_steps();
      if (!has_steps(steps_when_saved + 5)) return;
      is_stopped = true;
      kill(id, SIGTERM);
    };
    const ProgramResult result = train(run_of(ranks, endless), options);
    EXPECT_EQ(result.exit_code, 75) << result.told();
    EXPECT_EQ(ProgramResult::lines_with(result.err, " saved: ").size(), 2u) << result.told();
    EXPECT_FALSE(fs::exists(here / "out.tessera-save"));
    const auto checkpoints = io::list_checkpoints(out());
    ASSERT_EQ(checkpoints.size(), 2u) << result.told();
    // Another run goes on from the checkpoint that was asked for.
    const std::string last = "max_steps=" + std::to_string(checkpoints.front().step + 1);
    train_well(run_of(ranks, {last}));
    train_well({last, "output_dir=next", "--nproc", std::to_string(ranks),
                "resume_from_checkpoint=out/checkpoint-" + std::to_string(checkpoints.back().step)});
    EXPECT_TRUE(read_text(out("model.safetensors")) == read_text(here / "next/model.safetensors"));
  }
}

// A run that makes no checkpoints by itself makes one when it is asked to, and ends at once when it is asked
// to stop.
TEST_F(StopTest, WithoutCheckpointsARunSavesOnlyOnRequest) {
  bool is_asked = false, is_stopped = false;
  RunOptions options;
  options.while_talking = [&](pid_t id, const std::string& err) {
    if (!is_asked && has_steps(2)) {
      is_asked = true;
      kill(id, SIGUSR1);
    } else if (is_asked && !is_stopped && err.find(" saved: ") != std::string::npos &&
               has_steps(static_cast<size_t>(newest()) + 20)) {
      is_stopped = true;
      kill(id, SIGTERM);
    }
  };
  const ProgramResult result = train({"max_steps=1000000", "--nproc", "2"}, options);
  EXPECT_EQ(result.exit_code, 143) << result.told();
  EXPECT_GT(newest(), 0);
  EXPECT_NE(result.err.find("checkpoint-" + std::to_string(newest()) + " stays in out"), std::string::npos)
      << result.told();
}

TEST_F(StopTest, BeforeTheFirstStepNothingIsLost) {
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    clear();
    bool is_sent = false;
    RunOptions options;
    options.while_running = [&](pid_t id) {
      // The run makes its lock before it reads the data, so the signal comes early.
      if (is_sent || !fs::exists(here / "out.tessera-lock")) return;
      is_sent = true;
      kill(id, SIGTERM);
    };
    const ProgramResult result = train(run_of(ranks, {"max_steps=100000"}), options);
    EXPECT_EQ(result.exit_code, 75) << result.told();
    EXPECT_TRUE(result.error_lines().empty()) << result.told();
    EXPECT_FALSE(fs::exists(here / "out.tessera-lock"));
    EXPECT_EQ(ProgramResult::lines_with(result.err, "interrupted before").size() +
                  ProgramResult::lines_with(result.err, "stopped after step").size(),
              1u)
        << result.told();
  }
}

// A batch job whose time is too short for its start would go back into the queue for ever.
TEST_F(StopTest, ARequeuedJobThatGetsNoFurtherEndsAtItsFourthStart) {
  train_well(run_of(2, {"max_steps=3"}));
  const auto start = [&](const std::string& job, int restart, const Words& more, bool is_killed) {
    std::vector<pid_t> below;
    RunOptions options;
    options.environment = {{"SLURM_JOB_ID", job}, {"SLURM_RESTART_COUNT", std::to_string(restart)}};
    options.while_running = [&](pid_t root) {
      const std::string noted = read_text(here / "out.tessera-requeued");
      if (!is_killed || !below.empty() ||
          noted.find("\"restart\":\"" + std::to_string(restart) + "\"") == std::string::npos)
        return;
      for (const auto& [process, command] : processes_below(root)) below.push_back(process);
      // The root goes first: one that sees its ranks die ends by itself, with an exit code.
      kill(root, SIGKILL);
      for (const pid_t process : below) kill(process, SIGKILL);
    };
    const ProgramResult result = train(run_of(2, more), options);
    expect_gone(below);
    EXPECT_EQ(is_killed, result.signal == SIGKILL) << result.told();
    return result;
  };
  const Words more = {"max_steps=1000000"};
  for (const int restart : {1, 2, 3}) start("77", restart, more, true);
  for (const int restart : {4, 5}) {
    expect_error(start("77", restart, more, false), 5, "E-CKPT-CRASH-LOOP",
                 {"out: job 77", std::to_string(restart) + " times", "3 starts from checkpoint-3"});
  }
  // After a checkpoint, or in a new job, starts are counted from the beginning; a job that is done leaves no
  // file of the count.
  start("78", 1, more, true);
  EXPECT_EQ(start("78", 2, {"max_steps=5"}, false).exit_code, 0);
  EXPECT_FALSE(fs::exists(here / "out.tessera-requeued"));
  EXPECT_EQ(start("77", 6, {"max_steps=7"}, false).exit_code, 0);
  EXPECT_EQ(newest(), 7);
}

// The evaluation that a stop cut short is made by the run that goes on.
TEST_F(StopTest, AStopDuringAnEvaluationLeavesItToTheNextRun) {
  write_text(here / "eval.jsonl", tiny_rows(600));
  const Words evaluating = {"test_datasets.0.path=eval.jsonl", "eval_steps=4", "max_steps=40"};
  train_well(run_of(2, with(evaluating, {"output_dir=whole"})));
  bool is_sent = false;
  RunOptions options;
  options.while_running = [&](pid_t id) {
    if (is_sent || !has_steps(4)) return;
    is_sent = true;
    kill(id, SIGTERM);
  };
  const ProgramResult result = train(run_of(2, evaluating), options);
  ASSERT_EQ(result.exit_code, 75) << result.told();
  const ProgramResult next = train_well(run_of(2, evaluating));
  EXPECT_EQ(read_text(out("model.safetensors")), read_text(here / "whole/model.safetensors"));
  const auto evaluations = [&](const std::string& folder) {
    Words found;
    for (const auto& line : read_metrics(folder)) {
      if (line.contains("eval_loss")) found.push_back(line.at("eval_loss").dump());
    }
    return found;
  };
  EXPECT_EQ(evaluations(out()), evaluations(here / "whole")) << next.told();
}

}  // namespace
}  // namespace tessera::testing
