// Entry point of one-process tests.
#include <gmock/gmock.h>

#include "tests/testing/choose_files.h"
#include "tests/testing/lower_isa.h"
#include "tests/testing/restore_environment.h"
#include "tests/testing/skip.h"

int main(int argc, char** argv) {
  // No test reaches for the network, nor does a program that it starts.
  setenv("HF_HUB_OFFLINE", "1", 1);
  tessera::guard_cpu_features();
  if (tessera::testing::lacks_wanted_isa()) return tessera::testing::kSkipped;
  testing::InitGoogleMock(&argc, argv);
  if (!tessera::testing::choose_files(argc, argv)) return 2;
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  listeners.Append(new tessera::testing::RestoreEnvironment);
  listeners.Append(new tessera::testing::ReportSkips(true));
  const int code = RUN_ALL_TESTS();
  // A run in which every test was skipped has not passed: ctest must see it as skipped.
  const ::testing::UnitTest& tests = *::testing::UnitTest::GetInstance();
  const bool has_run = tests.skipped_test_count() == 0 || tests.successful_test_count() > 0;
  return code == 0 && !has_run ? tessera::testing::kSkipped : code;
}
