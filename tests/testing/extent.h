// How many cases a test runs that goes through many of them, where each case starts processes or a slow
// device. Such a test runs a sample of its cases, another one each time, and all of them when it is asked to.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <vector>

#include "tests/testing/random.h"

namespace tessera::testing {

// Tells whether tests run all their cases: TESSERA_TEST_EXTENT=all asks for it, as the runs with the label
// `exhaustive` do.
inline bool runs_all_cases() {
  const char* const extent = std::getenv("TESSERA_TEST_EXTENT");
  return extent != nullptr && std::string_view(extent) == "all";
}

// Returns `count` of the cases in their order, drawn by `random`; all of them if tests run all their cases.
// The ranks of one job draw alike with shared_random().
template <class T>
std::vector<T> some_of(std::vector<T> cases, size_t count, Random& random) {
  if (runs_all_cases()) return cases;
  std::vector<T> drawn;
  std::sample(cases.begin(), cases.end(), std::back_inserter(drawn), count, random.engine());
  return drawn;
}

}  // namespace tessera::testing
