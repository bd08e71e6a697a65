// Tests of errors in a job of several ranks: the user still reads one line, and the exit code is that of the
// rank that failed.
#include <algorithm>
#include <csignal>

#include "tests/integration/fixture.h"
#include "tests/testing/extent.h"
#include "tests/testing/paths.h"
#include "tests/testing/processes.h"

namespace tessera::testing {
namespace {

class RankErrorsTest : public ProgramTest {
 protected:
  ProgramResult train2(Words more) const {
    more.insert(more.end(), {"--nproc", "2"});
    return train(more, {.timeout_s = 60.0});
  }
};

TEST_F(RankErrorsTest, ErrorsOfAllRanksAreToldOnce) {
  write_text(here / "bad.jsonl", "{\"input_ids\": [1, 2\n");
  write_text(here / "empty.jsonl", "");
  expect_error(train2({"datasets.0.path=bad.jsonl"}), 3, "E-DATA-JSON", {"bad.jsonl:1:"});
  expect_error(train2({"datasets.0.path=empty.jsonl"}), 3, "E-DATA-NO-ROWS", {"empty.jsonl"});
  expect_error(train2({"sead=1"}), 2, "E-CONFIG-UNKNOWN-KEY", {"did you mean 'seed'"});
  expect_error(run({"train", "missing.yaml", "--nproc", "2"}), 2, "E-CONFIG-NOT-FOUND", {"missing.yaml"});
  expect_error(train2({"base_model=nowhere"}), 2, "E-CONFIG-NOT-FOUND", {"nowhere"});
  std::filesystem::copy(model(), here / "broken", std::filesystem::copy_options::recursive);
  std::filesystem::resize_file(here / "broken/model.safetensors", 5000);
  expect_error(train2({"base_model=broken"}), 4, "E-MODEL-SAFETENSORS", {"broken/model.safetensors"});
  std::filesystem::remove(here / "broken/config.json");
  expect_error(train2({"base_model=broken"}), 4, "E-MODEL-NO-FILE", {"config.json"});
  expect_error(run({"bench", "train", "--model", "broken", "--nproc", "2"}), 4, "E-MODEL-NO-FILE",
               {"config.json"});
}

TEST_F(RankErrorsTest, ErrorOfTheFirstRankAloneEndsTheOthers) {
  expect_error(train2({"output_dir=rows.jsonl/under"}), 6, "E-STORAGE", {"rows.jsonl"});
}

TEST_F(RankErrorsTest, ErrorOfTheSecondRankAloneEndsTheFirst) {
  // All ranks use the same relative paths, but the second one runs in a folder whose model is cut short.
  std::filesystem::create_directory(here / "other");
  for (const char* name : {"model", "recipe.yaml", "rows.jsonl"}) {
    std::filesystem::copy(here / name, here / (std::string("other/") + name),
                          std::filesystem::copy_options::recursive);
  }
  std::filesystem::resize_file(here / "other/model/model.safetensors", 5000);
  const Words rank = {"-n", "1", program_path(), "train", "recipe.yaml"};
  Words command = {"--quiet"};
  command.insert(command.end(), rank.begin(), rank.end());
  command.insert(command.end(), {":", "-wdir", here / "other"});
  command.insert(command.end(), rank.begin(), rank.end());
  const ProgramResult result = run_command(mpirun(command), {.timeout_s = 60.0, .folder = here.path()});
  expect_error(result, 4, "E-MODEL-SAFETENSORS", {"model.safetensors", "(rank 1)"});
}

TEST_F(RankErrorsTest, NprocUnderALauncher) {
  const auto under = [&](const std::string& ranks, const std::string& nproc) {
    return run_command(mpirun({"--quiet", "-n", ranks, program_path(), "bench", "train", "--model", "model",
                               "--seq", "8", "--steps", "1", "--nproc", nproc, "--json"}),
                       {.timeout_s = 60.0, .folder = here.path()});
  };
  expect_error(under("2", "3"), 2, "E-CONFIG-NPROC", {"--nproc 3", "2 rank"});
  expect_error(under("1", "2"), 2, "E-CONFIG-NPROC", {"--nproc 2", "1 rank"});
  const ProgramResult same = under("2", "2");
  ASSERT_EQ(same.exit_code, 0) << same.told();
  EXPECT_EQ(nlohmann::json::parse(ProgramResult::lines(same.out).back()).at("ranks"), 2) << same.told();
}

TEST_F(RankErrorsTest, SizesThatDoNotFitTheRanks) {
  expect_error(train2({"dp_shard_size=3"}), 2, "E-CONFIG-PARALLELISM", {"2 ranks", "dp_shard_size 3"});
  expect_error(train2({"dp_replicate_size=4"}), 2, "E-CONFIG-PARALLELISM", {"dp_replicate_size"});
  expect_error(train2({"train_batch_size=5"}), 2, "E-CONFIG", {"global_batch_size", "a divisor of 5"});
}

TEST_F(RankErrorsTest, DivergenceIsToldOnce) {
  expect_error(train2({"learning_rate=1e3", "weight_decay=1e3", "max_steps=50"}), 7, "E-NUMERICS", {"step"});
  EXPECT_FALSE(std::filesystem::exists(out("model.safetensors")));
  EXPECT_GE(read_metrics(partial()).size(), 1u);
}

TEST_F(RankErrorsTest, RanksThatSeeDifferentRecipes) {
  const auto two = [&](const Words& first, const Words& second) {
    Words command = {"--quiet", "-n", "1", program_path(), "train", "recipe.yaml"};
    command.insert(command.end(), first.begin(), first.end());
    command.insert(command.end(), {":", "-n", "1", program_path(), "train", "recipe.yaml"});
    command.insert(command.end(), second.begin(), second.end());
    return run_command(mpirun(command), {.timeout_s = 60.0, .folder = here.path()});
  };
  expect_error(two({}, {"learning_rate=3e-3"}), 2, "E-CONFIG-RANKS-DIFFER",
               {"rank 1", "learning_rate", "0.003", "0.01"});
  expect_error(two({"zero_stage=1"}, {}), 2, "E-CONFIG-RANKS-DIFFER", {"rank 1", "zero_stage"});
  expect_error(two({}, {"adapter=lora", "lora_target_linear=true"}), 2, "E-CONFIG-RANKS-DIFFER", {"rank 1"});
  // The second rank alone has an error, before the ranks have met.
  expect_error(two({}, {"sead=1"}), 2, "E-CONFIG-UNKNOWN-KEY", {"(rank 1)"});
  EXPECT_FALSE(std::filesystem::exists(out("model.safetensors")));
  const ProgramResult same = two({"seed=5"}, {"seed=5"});
  EXPECT_EQ(same.exit_code, 0) << same.told();
}

// Some processes under the user's own mpirun never join.
TEST_F(RankErrorsTest, ARankThatNeverJoinsEndsTheJobAndIsNamed) {
  RunOptions options;
  options.folder = here.path();
  // On a busy machine the time is prolonged, until both ranks that come have joined when one of them speaks.
  const auto ended = [&](const Words& last) {
    for (int seconds = 3;; seconds *= 3) {
      options.environment["TESSERA_START_TIMEOUT"] = std::to_string(seconds);
      const ProgramResult result = run_command(
          mpirun(with({"--quiet", "-n", "2", program_path(), "train", "recipe.yaml", ":"}, last)), options);
      if (seconds > 80 || result.err.find(" rank 1 (process ") != std::string::npos) return result;
    }
  };
  const ProgramResult one = ended({"-n", "1", "sleep", "600"});
  expect_error(
      one, 9, "E-PEER-START",
      {"of the job cannot connect to each other: rank 2 has not started; present are rank 0 (process ",
       "rank 1 (process ", "all 3 ranks", "TESSERA_START_TIMEOUT"});
  const ProgramResult two = ended({"-n", "2", "sleep", "600"});
  expect_error(two, 9, "E-PEER-START", {": rank 2, rank 3 have not started; present are rank 0 (process "});
  for (const std::string& name : here.entries()) EXPECT_FALSE(name.starts_with(".tessera-start")) << name;
}

TEST_F(RankErrorsTest, RanksThatAreKilledAsTheyStartLeaveNothingInTheOutputFolder) {
  const Words keys = {"save_steps=1", "auto_resume_from_checkpoints=true", "overwrite_output_dir=false"};
  train_well(with(keys, {"max_steps=2"}));
  std::vector<pid_t> killed;
  RunOptions options;
  options.folder = here.path();
  options.while_running = [&](pid_t root) {
    const Words names = here.entries();
    const bool has_come = std::any_of(names.begin(), names.end(), [](const std::string& name) {
      return name.starts_with(".tessera-start-");
    });
    if (!killed.empty() || !has_come) return;
    for (const auto& [process, command] : processes_below(root)) killed.push_back(process);
    for (const pid_t process : killed) kill(process, SIGKILL);
    kill(root, SIGKILL);
  };
  run_command(
      mpirun({"--quiet", "-n", "1", program_path(), "train", "recipe.yaml", ":", "-n", "1", "sleep", "600"}),
      options);
  ASSERT_FALSE(killed.empty());
  expect_gone(killed);
  train_well(with(keys, {"max_steps=3", "micro_batch_size=1", "--nproc", "2"}));
}

// The output folder cannot be written, so a rank cannot tell others that it has come. One rank waits alone
// here: if there were several, one that starts late might speak first.
TEST_F(RankErrorsTest, WhoHasComeIsNotKnownWhereNothingCanBeWritten) {
  RunOptions options;
  options.folder = here.path();
  options.environment["TESSERA_START_TIMEOUT"] = "2";
  const ProgramResult result =
      run_command(mpirun({"--quiet", "-n", "1", program_path(), "train", "recipe.yaml",
                          "output_dir=/proc/out", ":", "-n", "1", "sleep", "600"}),
                  options);
  expect_error(result, 9, "E-PEER-START", {"of the job cannot connect to each other; got rank 0 has waited"});
}

TEST_F(RankErrorsTest, KilledRankEndsTheJob) {
  for (const size_t victim : {0u, 1u}) {
    bool has_killed = false;
    RunOptions options;
    options.timeout_s = 60.0;
    std::vector<pid_t> ranks;
    options.while_running = [&](pid_t root) {
      if (has_killed || !std::filesystem::exists(partial("metrics.jsonl")) ||
          read_text(partial("metrics.jsonl")).empty())
        return;
      ranks = ranks_below(root);
      if (ranks.size() != 2) return;
      kill(ranks[victim], SIGKILL);
      has_killed = true;
    };
    const ProgramResult result = train({"max_steps=10000000", "--nproc", "2"}, options);
    EXPECT_TRUE(has_killed) << result.told();
    expect_error(result, 9, "E-PEER-LOST", {"rank " + std::to_string(victim) + " ", "signal 9"});
    EXPECT_FALSE(std::filesystem::exists(out("model.safetensors")));
    expect_gone(ranks);
    std::filesystem::remove_all(partial());
  }
}

TEST_F(RankErrorsTest, AKilledRankIsNamedUnderEveryAxisOn2And3And4Ranks) {
  write_tiny_model(here / "experts", {.family = "mixtral"});
  struct Case {
    size_t ranks, victim;
    Words keys;
  };
  const std::vector<Case> cases = {{3, 2, {}},
                                   {4, 3, {"dp_replicate_size=2"}},
                                   {2, 0, {"tensor_parallel_size=2"}},
                                   {2, 1, {"context_parallel_size=2"}},
                                   {2, 0, {"pipeline_parallel_size=2"}},
                                   {2, 1, {"pipeline_parallel_size=2"}},
                                   {2, 1, {"base_model=experts", "expert_parallel_size=2"}}};
  Random random;
  for (const Case& each : some_of(cases, 3, random)) {
    std::string name = std::to_string(each.ranks) + " ranks, rank " + std::to_string(each.victim);
    for (const std::string& key : each.keys) name += " " + key;
    SCOPED_TRACE(name);
    std::filesystem::remove_all(partial());
    std::vector<pid_t> ranks;
    RunOptions options;
    options.while_running = [&](pid_t root) {
      if (ranks.size() == each.ranks || num_steps() == 0) return;
      ranks = ranks_below(root);
      if (ranks.size() == each.ranks) kill(ranks[each.victim], SIGKILL);
    };
    const ProgramResult result =
        train(with({"max_steps=10000000", "--nproc", std::to_string(each.ranks)}, each.keys), options);
    expect_error(result, 9, "E-PEER-LOST",
                 {"rank " + std::to_string(each.victim) + " ", "signal 9",
                  "process " + std::to_string(ranks.at(each.victim))});
    expect_gone(ranks);
  }
}

TEST_F(RankErrorsTest, RanksEndWithTheProgramThatStartedThem) {
  std::vector<pid_t> below;
  RunOptions options;
  options.timeout_s = 60.0;
  options.while_running = [&](pid_t root) {
    if (!below.empty() || !std::filesystem::exists(partial("metrics.jsonl")) ||
        read_text(partial("metrics.jsonl")).empty())
      return;
    for (const auto& [id, command] : processes_below(root)) below.push_back(id);
    kill(root, SIGKILL);
  };
  const ProgramResult result = train({"max_steps=10000000", "--nproc", "2"}, options);
  EXPECT_EQ(result.signal, SIGKILL) << result.told();
  ASSERT_EQ(below.size(), 3u);
  expect_gone(below);
}

TEST_F(RankErrorsTest, NoLauncherIsSaid) {
  RunOptions options;
  options.environment["PATH"] = here.path();
  expect_error(train({"--nproc", "2"}, options), 2, "E-CONFIG-LAUNCHER", {"mpirun", "openmpi-bin"});
}

}  // namespace
}  // namespace tessera::testing
