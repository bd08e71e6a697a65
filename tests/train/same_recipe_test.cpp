#include "tessera/train/run/same_recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/comm/fake/fake_backend.h"
#include "tessera/core/error.h"

namespace tessera::train {
namespace {

// Recipes that differ between ranks are tested in tests/integration/rank_errors_test.cpp.
TEST(SameProgram, AnotherVersionOnOneRankIsToldToAllOn1And2And3Ranks) {
  for (const int64_t ranks : {1, 2, 3}) {
    for (int64_t odd = 0; odd <= ranks; ++odd) {
      comm::run_fake_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& world) {
        const std::string program = world->rank() == odd ? "Tessera 1.3" : "Tessera 1.2";
        std::string told;
        try {
          check_same_program(program, *world);
        } catch (const Error& error) {
          told = error.what();
        }
        if (ranks == 1 || odd == ranks) {
          EXPECT_EQ(told, "");
        } else if (odd == 0) {
          EXPECT_THAT(told,
                      ::testing::HasSubstr("rank 1 runs a different program from rank 0; got Tessera 1.2, "
                                           "need Tessera 1.3"));
        } else {
          EXPECT_THAT(told, ::testing::HasSubstr("E-CONFIG-RANKS-DIFFER]: rank " + std::to_string(odd) +
                                                 " runs a different program from rank 0; got Tessera 1.3"));
        }
      });
    }
  }
}

}  // namespace
}  // namespace tessera::train
