// Checks that no test is skipped without a known reason. This program runs itself with tests that are
// otherwise disabled.
#include "tests/testing/skip.h"

#include <gmock/gmock.h>

#include "tests/testing/run_program.h"
#include "tests/testing/temp_folder.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;

TEST(SkipCheck, DISABLED_InOtherWords) { GTEST_SKIP() << "no reason"; }
TEST(SkipCheck, DISABLED_WithoutWords) { GTEST_SKIP(); }
TEST(SkipCheck, DISABLED_ByTheTable) { GTEST_SKIP() << skip::kPermission << ": mounts"; }
TEST(SkipCheck, DISABLED_InPart) { report_skip(skip::kUnits, current_test()); }

ProgramResult run_disabled(const std::string& name, const std::string& report) {
  RunOptions options;
  options.environment["TESSERA_TEST_SKIPS"] = report;
  return run_command(
      {"/proc/self/exe", "--gtest_also_run_disabled_tests", "--gtest_filter=SkipCheck.DISABLED_" + name},
      options);
}

TEST(Skip, InOtherWordsFails) {
  const TempFolder here;
  for (const char* name : {"InOtherWords", "WithoutWords"}) {
    const ProgramResult result = run_disabled(name, here / "skips");
    EXPECT_EQ(result.exit_code, 1) << result.told();
    EXPECT_THAT(result.out, HasSubstr("not among skip::kReasons"));
  }
  EXPECT_TRUE(here.entries().empty());
}

TEST(Skip, ByTheTableIsReported) {
  const TempFolder here;
  // A program whose tests were all skipped has not passed.
  for (const auto& [name, code] : {std::pair("ByTheTable", 77), std::pair("InPart", 0)}) {
    const ProgramResult result = run_disabled(name, here / "skips");
    EXPECT_EQ(result.exit_code, code) << result.told();
  }
  std::ifstream file(here / "skips");
  const std::string lines{std::istreambuf_iterator<char>(file), {}};
  std::ostringstream wanted;
  wanted << skip::kPermission << "\tSkipCheck.DISABLED_ByTheTable\n"
         << skip::kUnits << "\tSkipCheck.DISABLED_InPart\n";
  EXPECT_EQ(lines, wanted.str());
}

}  // namespace
}  // namespace tessera::testing
