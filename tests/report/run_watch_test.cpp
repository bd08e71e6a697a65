#include "tessera/report/run_watch.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tessera/core/error.h"
#include "tessera/core/host_name.h"
#include "tessera/core/unix_time.h"

#include "tests/testing/temp_folder.h"

namespace tessera::report {
namespace {

using tessera::testing::TempFolder;
using ::testing::ElementsAre;

const std::string kLines =
    "{\"step\":10,\"epoch\":0.25,\"step_s\":2}\n{\"step\":10,\"eval_loss\":1}\n"
    "{\"step\":20,\"epoch\":0.5,\"step_s\":4}\n{\"step\":30,\"ep";

TEST(RunWatch, SaysHowARunIsDoing) {
  struct Case {
    const char* what;
    std::optional<std::string> lock;  // the text of the lock file
    const char* logs;                 // the folder that holds them
    const char* recipe;
    double later;  // seconds after the last line
    const char* state;
    std::optional<int64_t> steps;
    std::optional<double> left = std::nullopt;
    bool has_older = false;  // result in the folder
  };
  constexpr const char* kPartial = "out.tessera-partial/";
  const Case cases[] = {
      {"a result", std::nullopt, "out/", "max_steps: 20\n", 1e6, "finished", 20},
      {"under way", "", kPartial, "max_steps: 50\n", 1, "running", 50, 30 * 42.0 / 11},
      {"by epochs", "", kPartial, "max_steps: 0\nnum_epochs: 2\n", 1, "running", 80, 60 * 42.0 / 11},
      {"without a recipe", "", kPartial, "", 1, "running", std::nullopt},
      {"a recipe of nonsense", "", kPartial, "max_steps: -x\n\xff", 1, "running", std::nullopt},
      {"silent", "", kPartial, "max_steps: 50\n", 601, "stale", 50},
      {"killed", "process 2147483647 on " + host_name(), kPartial, "max_steps: 50\n", 1, "stale", 50},
      {"of another machine", "process 2147483647 on elsewhere.example", kPartial, "", 1, "running",
       std::nullopt},
      {"alive", "process " + std::to_string(getpid()) + " on " + host_name(), kPartial, "", 1, "running",
       std::nullopt},
      {"ended", std::nullopt, kPartial, "max_steps: 50\n", 1, "failed", 50},
      {"under way again, over a result", "", kPartial, "max_steps: 50\n", 1, "running", 50, 30 * 42.0 / 11,
       true},
  };
  for (const Case& each : cases) {
    const TempFolder here;
    if (each.has_older) here.write("out/metrics.jsonl", "");
    if (each.lock) here.write("out.tessera-lock", *each.lock);
    here.write(std::string(each.logs) + "metrics.jsonl", kLines);
    here.write(std::string(each.logs) + "recipe.yaml", each.recipe);
    const RunWatch watch({here / "out/"});
    ASSERT_EQ(watch.size(), 1U) << each.what;
    EXPECT_THAT(watch.names(), ElementsAre("out"));
    const RunStatus status = watch.status(0, unix_time_s() + each.later);
    EXPECT_STREQ(phase_name(status.phase), each.state) << each.what;
    EXPECT_EQ(status.step, 20) << each.what;
    EXPECT_EQ(status.steps, each.steps) << each.what;
    EXPECT_EQ(status.seconds_left.has_value(), each.left.has_value()) << each.what;
    EXPECT_NEAR(status.seconds_left.value_or(0.0), each.left.value_or(0.0), 1e-9) << each.what;
    EXPECT_EQ(status.bytes, std::ssize(kLines)) << each.what;
  }
}

TEST(RunWatch, CheckpointsAndHangsAreThoseOfTheRun) {
  const TempFolder here;
  here.write("out.tessera-partial/metrics.jsonl", kLines);
  here.write("out.tessera-hang.json", "{}");
  for (const char* step : {"10", "5", "40"})
    here.write(std::string("out/checkpoint-") + step + "/manifest.json", "");
  const RunStatus status = RunWatch({here / "out"}).status(0, unix_time_s());
  EXPECT_THAT(status.checkpoints, ElementsAre(5, 10));
  EXPECT_TRUE(status.has_hung);
}

TEST(RunWatch, IndicesStayWhileRunsComeAndLinksAreLeftOut) {
  const TempFolder here, elsewhere;
  here.write("sweep/b/metrics.jsonl", kLines);
  elsewhere.write("secret/metrics.jsonl", kLines);
  std::filesystem::create_symlink(elsewhere / "secret", here / "sweep/link");
  RunWatch watch({here / "sweep", here / "sweep/b"});
  EXPECT_THAT(watch.names(), ElementsAre("b"));
  here.write("sweep/a.tessera-partial/metrics.jsonl", kLines);
  watch.look();
  EXPECT_THAT(watch.names(), ElementsAre("b", "a"));
  EXPECT_EQ(watch.file(1, "x"), here / "sweep/a.tessera-partial/x");
  std::filesystem::rename(here / "sweep/a.tessera-partial", here / "sweep/a");
  EXPECT_EQ(watch.file(1, "x"), here / "sweep/a/x");
  std::filesystem::remove_all(here / "sweep/b");
  EXPECT_THROW(watch.status(0, unix_time_s()), Error);
  EXPECT_THROW(RunWatch({here / "none"}), Error);
  EXPECT_EQ(RunWatch({elsewhere.path() + "/secret/.."}).size(), 1U);
}

TEST(RunWatch, LinksInsideARunAreNotRead) {
  const TempFolder here;
  const std::string secret = here.write("secret", "token: 1\n");
  here.write("out/metrics.jsonl", kLines);
  std::filesystem::create_symlink(secret, here / "out/recipe.yaml");
  const RunWatch watch({here / "out"});
  EXPECT_THROW(watch.recipe(0), Error);
}

}  // namespace
}  // namespace tessera::report
