// Entry point of one-process tests.
#include <gmock/gmock.h>

#include "tessera/core/cpu_features.h"

int main(int argc, char** argv) {
  tessera::guard_cpu_features();
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
