// Runs that are killed and started again, as a user does it.
#include <csignal>
#include <cstdlib>
#include <random>

#include "tessera/io/checkpoint_folders.h"

#include "tests/integration/fixture.h"
#include "tests/testing/processes.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public ProgramTest {
 protected:
  const Words saving_ = {"max_steps=60", "save_steps=3", "save_total_limit=2",
                         "auto_resume_from_checkpoints=true", "overwrite_output_dir=false"};

  Words saving(const Words& more) const {
    Words words = saving_;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  int64_t newest() const {
    const auto found = io::list_checkpoints(out());
    return found.empty() ? 0 : found.front().step;
  }
  // Steps and losses of the lines of metrics.jsonl.
  std::vector<std::pair<int64_t, double>> losses(const std::string& folder) const {
    std::vector<std::pair<int64_t, double>> losses;
    for (const auto& line : read_metrics(folder)) losses.emplace_back(line.at("step"), line.at("loss"));
    return losses;
  }
};

// All ranks, or one of them, at random moments; then again, until the run ends.
TEST_F(CheckpointTest, AKilledRunGoesOnAsIfNothingHadBeen) {
  train_well({"max_steps=60", "--nproc", "2", "output_dir=whole"});
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  constexpr int kKills = 6;
  int kills = 0;
  for (bool has_ended = false; !has_ended;) {
    SCOPED_TRACE("start " + std::to_string(kills));
    const int64_t before = newest();
    const int64_t until = before + 3 * static_cast<int64_t>(1 + random() % 3);
    const auto delay = static_cast<useconds_t>(random() % 30000);
    const bool kills_all = random() % 2 == 0;
    const size_t rank = random() % 2;
    bool is_killed = false;
    RunOptions options;
    options.while_running = [&](pid_t id) {
      if (kills == kKills || is_killed || newest() < std::min<int64_t>(until, 57)) return;
      usleep(delay);
      if (kills_all) {
        for (const auto& [process, command] : processes_below(id)) kill(process, SIGKILL);
        kill(id, SIGKILL);
      } else if (const auto ranks = ranks_below(id); ranks.size() == 2) {
        kill(ranks[rank], SIGKILL);
      }
      is_killed = true;
    };
    const ProgramResult result = train(saving({"--nproc", "2"}), options);
    has_ended = result.exit_code == 0;
    kills += is_killed ? 1 : 0;
    ASSERT_TRUE(has_ended || is_killed) << result.told();
    ASSERT_GE(newest(), before) << result.told();
    if (before > 0) {
      EXPECT_NE(result.err.find("after step " + std::to_string(before)), std::string::npos) << result.told();
    }
  }
  EXPECT_GT(kills, 0);
  EXPECT_TRUE(read_text(out("model.safetensors")) == read_text(here / "whole/model.safetensors"));
  EXPECT_EQ(losses(out()), losses(here / "whole"));
  Words names;
  for (const auto& entry : fs::directory_iterator(out())) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (Words{"checkpoint-57", "checkpoint-60", "runs"}));
  for (const std::string& name : here.entries()) EXPECT_EQ(name.find("tessera-"), std::string::npos) << name;
}

TEST_F(CheckpointTest, AFinishedRunEndsAgainAtOnce) {
  train_well(saving({"max_steps=7"}));
  const std::string weights = read_text(out("model.safetensors"));
  const auto before = losses(out());
  train_well(saving({"max_steps=7"}));
  EXPECT_TRUE(read_text(out("model.safetensors")) == weights);
  EXPECT_EQ(losses(out()), before);
  // And goes on where there is more to do.
  train_well(saving({"max_steps=9"}));
  EXPECT_EQ(losses(out()).size(), 9U);
  expect_error(train({"overwrite_output_dir=false"}), 2, "E-CONFIG-OUTPUT-USED",
               {"holds a result already", "go on from its checkpoints"});
}

TEST_F(CheckpointTest, AnyNumberOfRanksGoesOn) {
  const Words wide = {"dtype=float64",
                      "max_steps=9",
                      "save_steps=3",
                      "micro_batch_size=1",
                      "output_dir=wide",
                      "--nproc",
                      "3"};
  train_well(wide);
  train_well(
      {"dtype=float64", "max_steps=9", "micro_batch_size=3", "resume_from_checkpoint=wide/checkpoint-6"});
  const auto want = losses(here / "wide"), got = losses(out());
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].first, want[i].first);
    EXPECT_NEAR(got[i].second, want[i].second, 1e-9) << "step " << i + 1;
  }
  expect_error(train({"resume_from_checkpoint=wide/checkpoint-5"}), 5, "E-CKPT-NO-MANIFEST",
               {"wide/checkpoint-5"});
}

TEST_F(CheckpointTest, AnInterruptSaysWhatStays) {
  RunOptions options;
  bool is_sent = false;
  options.while_running = [&](pid_t id) {
    if (is_sent || newest() < 6) return;
    kill(id, SIGINT);
    is_sent = true;
  };
  const ProgramResult result = train(saving({"max_steps=100000"}), options);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.err.find("stays in out"), std::string::npos) << result.told();
  EXPECT_EQ(result.err.find("nothing is saved"), std::string::npos) << result.told();
}

}  // namespace
}  // namespace tessera::testing
