#include "tessera/scoring/python_random.h"

#include <gtest/gtest.h>

#include "tests/scoring/task_reference.h"

namespace tessera::scoring {
namespace {

TEST(PythonRandom, DrawsWhatPythonDraws) {
  for (const Json& draws : read_reference("random.json")) {
    PythonRandom random(draws["seed"].get<uint64_t>());
    for (const Json& sample : draws["samples"]) {
      EXPECT_EQ(random.sample(sample[0].get<int64_t>(), sample[1].get<int64_t>()),
                sample[2].get<std::vector<int64_t>>())
          << draws["seed"] << ": " << sample;
    }
    for (const Json& real : draws["reals"]) EXPECT_EQ(random.real(), real.get<double>()) << draws["seed"];
  }
}

}  // namespace
}  // namespace tessera::scoring
