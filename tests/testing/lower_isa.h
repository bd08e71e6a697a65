// Runs a test on vector units below the best of the machine (TESSERA_TEST_ISA, see cmake/TesseraTest.cmake).
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tessera/core/cpu_features.h"

#include "tests/testing/skip.h"

namespace tessera::testing {

// Exit code that ctest takes for "skipped".
inline constexpr int kSkipped = 77;

// Prints the instruction set that own kernels run on. Returns true if the run must be skipped: the
// machine lacks the units that TESSERA_TEST_ISA names, or they are its best, on which the test runs anyhow.
inline bool lacks_wanted_isa() {
  const char* wanted = std::getenv("TESSERA_TEST_ISA");
  const Isa used = usable_isa();
  std::printf("own kernels run on: %s\n", name_of(used));
  if (wanted == nullptr || (std::string_view(wanted) == name_of(used) && used != best_isa())) return false;
  std::printf("skipped: %s is not below the best of this machine, %s\n", wanted, name_of(best_isa()));
  report_skip(skip::kLowerIsa, wanted);
  return true;
}

}  // namespace tessera::testing
