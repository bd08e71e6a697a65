#include "tessera/core/shared_range.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tessera {
namespace {

std::vector<int64_t> begins_of(SharedRange& range) {
  std::vector<int64_t> begins;
  for (auto part = range.take(); !part.is_empty(); part = range.take()) begins.push_back(part.begin);
  return begins;
}

TEST(SharedRange, PartsBecomeLess) {
  SharedRange range(3, 103, 2, 20);
  // 20 at most, then a quarter of the rest.
  EXPECT_EQ(begins_of(range),
            (std::vector<int64_t>{3, 23, 43, 58, 69, 77, 83, 88, 91, 94, 96, 97, 98, 99, 100, 101, 102}));
  EXPECT_TRUE(range.take().is_empty());
  range.restart(5, 7);
  EXPECT_EQ(begins_of(range), (std::vector<int64_t>{5, 6}));
}

TEST(SharedRange, OneThreadTakesAsMuchAsItMay) {
  SharedRange range(0, 50, 1, 20);
  EXPECT_EQ(begins_of(range), (std::vector<int64_t>{0, 20, 40}));
  SharedRange nothing(4, 4, 3, 9);
  EXPECT_TRUE(nothing.take().is_empty());
}

TEST(SharedRange, ThreadsTakeEachNumberOnce) {
  constexpr int64_t kNumbers = 100000;
  SharedRange range(0, kNumbers, 4, 50);
  std::vector<int> taken(kNumbers);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (auto part = range.take(); !part.is_empty(); part = range.take()) {
        for (int64_t number = part.begin; number < part.end; ++number) ++taken[static_cast<size_t>(number)];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int times : taken) ASSERT_EQ(times, 1);
}

}  // namespace
}  // namespace tessera
