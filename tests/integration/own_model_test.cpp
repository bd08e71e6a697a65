// Runs the examples, in the tree and built against an installed copy of the library.
#include <cmath>
#include <sys/stat.h>

#include "tests/integration/fixture.h"
#include "tests/testing/paths.h"
#include "tests/testing/skip.h"

namespace tessera::testing {
namespace {

std::vector<double> losses_of(const ProgramResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.told();
  std::vector<double> losses;
  for (const std::string& line : ProgramResult::lines_with(result.out, "loss ")) {
    losses.push_back(std::stod(line.substr(line.find("loss ") + 5)));
  }
  return losses;
}

// Runs the program alone and on more ranks and expects the same losses, up to the rounding of the four digits
// that it prints.
void expect_same_losses_on_any_ranks(const std::string& program,
                                     const std::vector<const char*>& more = {"2", "3"}) {
  const auto alone = losses_of(run_command({program}));
  ASSERT_EQ(alone.size(), 30u);
  EXPECT_LT(alone.back(), 0.5 * alone.front());
  for (const char* ranks : more) {
    const auto losses = losses_of(run_command(mpirun({"-n", ranks, program})));
    ASSERT_EQ(losses.size(), alone.size()) << ranks << " ranks";
    for (size_t step = 0; step < alone.size(); ++step)
      EXPECT_NEAR(losses[step], alone[step], 2.1e-4) << ranks << " ranks, step " << step + 1;
  }
}

TEST(OwnModelTest, InTheTree) {
  expect_same_losses_on_any_ranks(std::string(TESSERA_BUILD_DIR) + "/own_model");
}

TEST(OwnModelTest, WithItsLayersCut) {
  expect_same_losses_on_any_ranks(std::string(TESSERA_BUILD_DIR) + "/tensor_parallel", {"2", "3", "4"});
}

TEST(OwnModelTest, WithItsTokensCut) {
  expect_same_losses_on_any_ranks(std::string(TESSERA_BUILD_DIR) + "/context_parallel");
}

TEST(OwnModelTest, AsAPipeline) {
  expect_same_losses_on_any_ranks(std::string(TESSERA_BUILD_DIR) + "/pipeline", {"2", "3", "4"});
}

TEST(OwnModelTest, AgainstTheInstalledPackage) {
  if (kHasSanitizer) GTEST_SKIP() << skip::kSanitizer;
  const TempFolder here;
  const std::string prefix = here / "prefix", build = here / "build";
  const RunOptions patient{.timeout_s = 600.0};
  const auto run_well = [&](const Words& command) {
    const ProgramResult result = run_command(command, patient);
    ASSERT_EQ(result.exit_code, 0) << result.told();
  };
  run_well({TESSERA_CMAKE, "--install", TESSERA_BUILD_DIR, "--prefix", prefix});
  Words configure = {TESSERA_CMAKE,
                     "-S",
                     source_folder() + "/examples",
                     "-B",
                     build,
                     "-G",
                     "Ninja",
                     "-DCMAKE_PREFIX_PATH=" + prefix,
                     "-DCMAKE_BUILD_TYPE=Release",
                     std::string("-DCMAKE_CXX_COMPILER=") + TESSERA_CXX};
  const std::string launcher = TESSERA_CXX_LAUNCHER;
  if (!launcher.empty()) configure.push_back("-DCMAKE_CXX_COMPILER_LAUNCHER=" + launcher);
  run_well(configure);
  run_well({TESSERA_CMAKE, "--build", build});
  if (::testing::Test::HasFatalFailure()) return;
  expect_same_losses_on_any_ranks(build + "/own_model");
  // The installed program runs too.
  const ProgramResult version = run_command({prefix + "/bin/tessera", "--version"});
  EXPECT_EQ(version.exit_code, 0) << version.told();
  EXPECT_FALSE(std::filesystem::exists(prefix + "/include/tessera/cli"));
  // Other users run it too: the LibTorch that set-up has fetched into a cache is installed with it.
  if (!std::filesystem::exists(std::string(TESSERA_LIBTORCH) + "/.complete")) return;
  ASSERT_EQ(chmod(here.path().c_str(), 0755), 0);
  RunOptions other;
  other.has_empty_environment = true;
  other.prepare = become_another_user;
  const ProgramResult loads = run_command({"ldd", prefix + "/bin/tessera"}, other);
  EXPECT_EQ(ProgramResult::lines_with(loads.out, prefix).size(), 5u) << loads.told();
  const ProgramResult by_other = run_command({prefix + "/bin/tessera", "--version"}, other);
  EXPECT_EQ(by_other.exit_code, 0) << by_other.told();
}

}  // namespace
}  // namespace tessera::testing
