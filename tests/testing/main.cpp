// Entry point of one-process tests.
#include <gmock/gmock.h>

#include "tests/testing/lower_isa.h"
#include "tests/testing/skip.h"

int main(int argc, char** argv) {
  tessera::guard_cpu_features();
  if (tessera::testing::lacks_wanted_isa()) return tessera::testing::kSkipped;
  testing::InitGoogleMock(&argc, argv);
  ::testing::UnitTest::GetInstance()->listeners().Append(new tessera::testing::ReportSkips(true));
  return RUN_ALL_TESTS();
}
