// Entry point of multi-rank tests. Every rank runs every test; a rank count other than the promised one is a
// failure, never a skip. A failing rank ends the job, so that its peers do not wait.
#include <cstdio>
#include <cstdlib>

#include <gmock/gmock.h>

#include "tessera/comm/bootstrap.h"

#include "tests/testing/choose_files.h"
#include "tests/testing/lower_isa.h"
#include "tests/testing/mpi_world.h"
#include "tests/testing/restore_environment.h"
#include "tests/testing/skip.h"

namespace {

std::shared_ptr<tessera::comm::Communicator> world_of_tests;

// Ends the whole job at the first test that fails on any rank. Ranks other than 0, which print nothing else,
// print what failed.
class EndJobOnFailure : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed() || world_of_tests->rank() == 0) return;
    std::fprintf(stderr, "rank %d: %s:%d: %s\n", static_cast<int>(world_of_tests->rank()),
                 result.file_name() == nullptr ? "?" : result.file_name(), result.line_number(),
                 result.message());
  }
  void OnTestEnd(const testing::TestInfo& info) override {
    if (!info.result()->Failed()) return;
    std::fflush(nullptr);
    tessera::comm::Bootstrap::abort(1);
  }
};

}  // namespace

namespace tessera::testing {
std::shared_ptr<comm::Communicator> world() { return world_of_tests; }
}  // namespace tessera::testing

int main(int argc, char** argv) {
  setenv("HF_HUB_OFFLINE", "1", 1);
  tessera::guard_cpu_features();
  if (tessera::testing::lacks_wanted_isa()) return tessera::testing::kSkipped;
  testing::InitGoogleMock(&argc, argv);
  if (!tessera::testing::choose_files(argc, argv)) return 2;
  const tessera::comm::Bootstrap bootstrap;
  world_of_tests = bootstrap.world();
  const char* promised = std::getenv("TESSERA_TEST_RANKS");
  if (promised == nullptr || std::atoi(promised) != world_of_tests->size()) {
    std::fprintf(stderr, "need %s ranks, got %d\n", promised ? promised : "TESSERA_TEST_RANKS",
                 static_cast<int>(world_of_tests->size()));
    tessera::comm::Bootstrap::abort(1);
  }
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (world_of_tests->rank() != 0) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new tessera::testing::RestoreEnvironment);
  listeners.Append(new EndJobOnFailure);
  // gtest calls OnTestEnd of the last listener first, so this reports the end of a test before the others see
  // it.
  listeners.Append(new tessera::testing::ReportSkips(world_of_tests->rank() == 0));
  const int result = RUN_ALL_TESTS();
  world_of_tests.reset();
  return result;
}
