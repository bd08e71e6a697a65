#include "tessera/cli/session_folder.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

// Each start removes folders that killed programs have left, but never one that another start has just made.
TEST(SessionFolder, StartsAtTheSameTimeKeepTheirFolders) {
  constexpr int kStarts = 8, kTimes = 400;
  std::vector<int> kept(kStarts, 0);
  std::vector<std::thread> starts;
  for (int start = 0; start < kStarts; ++start) {
    starts.emplace_back([&kept, start] {
      for (int i = 0; i < kTimes; ++i) {
        const SessionFolder folder("a test", 0);
        std::ofstream file(folder.path() + "/file");
        file << "text" << std::flush;
        std::this_thread::yield();
        kept[static_cast<size_t>(start)] += file.good() && std::filesystem::exists(folder.path() + "/file");
      }
    });
  }
  for (std::thread& start : starts) start.join();
  for (const int count : kept) EXPECT_EQ(count, kTimes);
}

TEST(SessionFolder, RemovesWhatWasKilledBeforeItsLock) {
  std::string place;
  {
    const SessionFolder folder("a test", 0);
    place = std::filesystem::path(folder.path()).parent_path();
  }
  std::string left = place + "/tessera-job-XXXXXX", foreign = place + "/tessera-other-XXXXXX";
  ASSERT_NE(mkdtemp(left.data()), nullptr);
  ASSERT_NE(mkdtemp(foreign.data()), nullptr);
  const SessionFolder held("a test", 0);
  {
    const SessionFolder next("a test", 0);
    EXPECT_FALSE(std::filesystem::exists(left));
    EXPECT_TRUE(std::filesystem::exists(foreign));
    EXPECT_TRUE(std::filesystem::exists(held.path()));
  }
  std::filesystem::remove(foreign);
}

}  // namespace
}  // namespace tessera::cli
