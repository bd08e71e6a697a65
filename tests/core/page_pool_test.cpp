#include "tessera/core/page_pool.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tessera {
namespace {

constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB;

PagePoolOptions small_pool(size_t slack = 0) {
  PagePoolOptions options;
  options.reserve_bytes = 1024 * kMiB;
  options.slack_bytes = slack;
  return options;
}

TEST(PagePoolTest, KeepsPagesBetweenUses) {
  PagePool pool(small_pool());
  ASSERT_TRUE(pool.is_available());
  void* first = pool.allocate(8 * kMiB);
  ASSERT_NE(first, nullptr);
  std::memset(first, 7, 8 * kMiB);
  pool.deallocate(first);
  const int64_t fresh = pool.stats().fresh_bytes;
  auto* second = static_cast<unsigned char*>(pool.allocate(8 * kMiB));
  EXPECT_EQ(second, first);
  EXPECT_EQ(second[4 * kMiB], 7) << "the page is the old one";
  EXPECT_EQ(pool.stats().fresh_bytes, fresh);
  pool.deallocate(second);
  pool.trim();
  EXPECT_EQ(pool.stats().resident_bytes, 0);
  auto* third = static_cast<unsigned char*>(pool.allocate(8 * kMiB));
  EXPECT_EQ(third[4 * kMiB], 0) << "the page is a new one";
  pool.deallocate(third);
}

TEST(PagePoolTest, BlocksAreAlignedAndOwned) {
  PagePool pool(small_pool());
  for (const size_t bytes : {size_t{1}, 64 * kKiB, 64 * kKiB + 1, 3 * kMiB + 17}) {
    void* block = pool.allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % PagePool::kPage, 0u);
    EXPECT_TRUE(pool.owns(block));
  }
  int local = 0;
  EXPECT_FALSE(pool.owns(&local));
  EXPECT_FALSE(pool.owns(nullptr));
}

TEST(PagePoolTest, RefusesWhatDoesNotFit) {
  PagePool pool(small_pool());
  EXPECT_EQ(pool.allocate(size_t{1} << 62), nullptr);
  EXPECT_EQ(pool.allocate(SIZE_MAX), nullptr);
  void* most = pool.allocate(1000 * kMiB);
  ASSERT_NE(most, nullptr);
  EXPECT_EQ(pool.allocate(100 * kMiB), nullptr);
  pool.deallocate(most);
  void* again = pool.allocate(1024 * kMiB);
  EXPECT_NE(again, nullptr);
  pool.deallocate(again);
}

TEST(PagePoolTest, FreeNeighboursMerge) {
  PagePool pool(small_pool());
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(pool.allocate(kMiB));
  for (const int i : {1, 3, 5, 7, 0, 2, 4, 6}) pool.deallocate(blocks[i]);
  const int64_t fresh = pool.stats().fresh_bytes;
  void* whole = pool.allocate(8 * kMiB);
  EXPECT_EQ(whole, blocks[0]);
  EXPECT_EQ(pool.stats().fresh_bytes, fresh);
  pool.deallocate(whole);
}

// Returns the permissions of the mapping that holds `address`, as in /proc/self/maps: "rw-p".
std::string permissions_of(const void* address) {
  std::ifstream maps("/proc/self/maps");
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char permissions[5] = {};
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, permissions) != 3) continue;
    if (begin <= wanted && wanted < end) return permissions;
  }
  return "";
}

// If the system does not overcommit memory, only trimming makes room for others.
TEST(PagePoolTest, TrimmingGivesTheFreeEndBack) {
  PagePool pool(small_pool());
  auto* first = static_cast<char*>(pool.allocate(kMiB));
  auto* middle = static_cast<char*>(pool.allocate(200 * kMiB));
  auto* last = static_cast<char*>(pool.allocate(kMiB));
  const int64_t most = pool.stats().committed_bytes;
  EXPECT_GE(most, 202 * static_cast<int64_t>(kMiB));
  first[0] = last[0] = 5;
  pool.deallocate(middle);
  pool.trim();
  EXPECT_EQ(pool.stats().committed_bytes, most) << "the last block is in use";
  EXPECT_EQ(last[0], 5);
  pool.deallocate(last);
  EXPECT_EQ(permissions_of(last), "rw-p");
  pool.trim();
  EXPECT_LT(pool.stats().committed_bytes, 100 * static_cast<int64_t>(kMiB));
  EXPECT_EQ(permissions_of(last), "---p");
  EXPECT_EQ(first[0], 5);
  auto* again = static_cast<char*>(pool.allocate(300 * kMiB));
  ASSERT_EQ(again, middle);
  std::memset(again, 6, 300 * kMiB);
  EXPECT_EQ(first[0], 5);
  pool.deallocate(again);
  pool.deallocate(first);
  pool.trim();
  EXPECT_EQ(pool.stats().committed_bytes, 0);
  first = static_cast<char*>(pool.allocate(kMiB));
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first[0], 0);
  pool.deallocate(first);
}

// Holes that fit no request go back to the system before new pages are taken.
TEST(PagePoolTest, HoldsNoMoreThanWasInUseAtOnce) {
  PagePool pool(small_pool());
  std::vector<void*> small;
  for (int i = 0; i < 64; ++i) small.push_back(pool.allocate(kMiB));
  for (int i = 0; i < 64; i += 2) pool.deallocate(small[i]);
  void* large = pool.allocate(32 * kMiB);  // fits into no hole
  const PagePoolStats stats = pool.stats();
  EXPECT_EQ(stats.peak_live_bytes, 64 * static_cast<int64_t>(kMiB));
  EXPECT_EQ(stats.peak_resident_bytes, stats.peak_live_bytes);
  EXPECT_EQ(stats.returned_bytes, 32 * static_cast<int64_t>(kMiB));
  pool.deallocate(large);
  for (int i = 1; i < 64; i += 2) pool.deallocate(small[i]);
  EXPECT_EQ(pool.stats().live_bytes, 0);
}

struct Held {
  unsigned char* data;
  size_t bytes;
  unsigned char mark;
};

bool is_intact(const Held& held) {
  return held.data[0] == held.mark && held.data[held.bytes / 2] == held.mark &&
         held.data[held.bytes - 1] == held.mark;
}

// Allocates and frees at random, and checks that blocks never overlap and that the bound on memory always
// holds.
void churn(PagePool& pool, uint64_t seed, int rounds, std::vector<Held>& held, bool& intact) {
  std::mt19937_64 random(seed);
  for (int round = 0; round < rounds; ++round) {
    if (held.size() > 40 || (!held.empty() && random() % 2 == 0)) {
      const size_t i = random() % held.size();
      intact = intact && is_intact(held[i]);
      pool.deallocate(held[i].data);
      held[i] = held.back();
      held.pop_back();
    } else {
      const size_t bytes = 1 + random() % (random() % 4 == 0 ? 4 * kMiB : 256 * kKiB);
      auto* data = static_cast<unsigned char*>(pool.allocate(bytes));
      if (data == nullptr) continue;
      const auto mark = static_cast<unsigned char>(random());
      data[0] = data[bytes / 2] = data[bytes - 1] = mark;
      held.push_back({data, bytes, mark});
    }
  }
}

TEST(PagePoolTest, RandomTrafficKeepsBlocksApartAndMemoryBounded) {
  for (const size_t granule : {4 * kKiB, 64 * kKiB, 2 * kMiB}) {
    PagePoolOptions options = small_pool();
    options.granule_bytes = granule;
    PagePool pool(options);
    std::vector<Held> held;
    bool intact = true;
    churn(pool, 11, 20000, held, intact);
    const PagePoolStats stats = pool.stats();
    EXPECT_TRUE(intact);
    int64_t live = 0;
    for (const Held& one : held) {
      live += static_cast<int64_t>((one.bytes + PagePool::kPage - 1) / PagePool::kPage * PagePool::kPage);
      EXPECT_TRUE(is_intact(one));
    }
    EXPECT_EQ(stats.live_bytes, live);
    // Granules that a block and a hole share cannot be given back.
    EXPECT_LE(stats.peak_resident_bytes, stats.peak_live_bytes + 2 * 42 * static_cast<int64_t>(granule));
    EXPECT_EQ(stats.resident_bytes, stats.fresh_bytes - stats.returned_bytes);
    for (const Held& one : held) pool.deallocate(one.data);
    pool.trim();
    EXPECT_EQ(pool.stats().resident_bytes, 0);
  }
}

TEST(PagePoolTest, ThreadsShareIt) {
  PagePool pool(small_pool());
  constexpr int kThreads = 4;
  std::vector<std::vector<Held>> held(kThreads);
  std::vector<char> intact(kThreads, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      bool ok = true;
      churn(pool, 100 + t, 3000, held[t], ok);
      intact[t] = ok;
    });
  }
  for (auto& thread : threads) thread.join();
  // Blocks are freed by another thread than the one that allocated them.
  for (int t = 0; t < kThreads; ++t) {
    EXPECT_TRUE(intact[t]);
    for (const Held& one : held[t]) {
      EXPECT_TRUE(is_intact(one));
      pool.deallocate(one.data);
    }
  }
  EXPECT_EQ(pool.stats().live_bytes, 0);
}

}  // namespace
}  // namespace tessera
