#include "tessera/core/core_set.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "tessera/core/error.h"

namespace tessera {
namespace {

CoreSet range(int count) {
  CoreSet cores(count);
  std::iota(cores.begin(), cores.end(), 0);
  return cores;
}

TEST(CoreSetTest, TextAndBack) {
  for (const char* text : {"", "0", "0-3", "0-3,8", "1,3,5-6"}) {
    EXPECT_EQ(to_string(parse_core_set(text)), text);
  }
  for (const char* text : {"x", "1-", "3-1", "1,,2", "2,1", "-1", "1 2", "99999999999"}) {
    EXPECT_THROW(parse_core_set(text), Error) << text;
  }
}

TEST(CoreSetTest, RanksDivideTheCoresOfTheirMachine) {
  for (const int num_cores : {1, 2, 3, 8, 13}) {
    for (int num_ranks = 1; num_ranks <= num_cores; ++num_ranks) {
      const std::vector<CoreSet> sets(num_ranks, range(num_cores));
      CoreSet all;
      for (int rank = 0; rank < num_ranks; ++rank) {
        const CoreShare share = share_of_cores(sets, rank, range(num_cores));
        EXPECT_EQ(share.threads, num_cores / num_ranks);
        if (num_ranks == 1) {
          EXPECT_TRUE(share.cores.empty());
          continue;
        }
        EXPECT_GE(static_cast<int64_t>(share.cores.size()), share.threads);
        all.insert(all.end(), share.cores.begin(), share.cores.end());
      }
      if (num_ranks > 1) {
        EXPECT_EQ(all, range(num_cores));
      }
    }
  }
}

TEST(CoreSetTest, CoresAreDealtInTheGivenOrder) {
  // Each core has two hardware threads: 0 and 2, and 1 and 3.
  const std::vector<CoreSet> sets(2, range(4));
  EXPECT_EQ(share_of_cores(sets, 0, {0, 2, 1, 3}).cores, (CoreSet{0, 2}));
  EXPECT_EQ(share_of_cores(sets, 1, {2, 0, 3, 1}).cores, (CoreSet{1, 3}));
}

TEST(CoreSetTest, WhatALauncherBoundStaysAsItIs) {
  const std::vector<CoreSet> sets = {{0, 1, 2, 3}, {4, 5}, {6, 7}, {6, 7}};
  EXPECT_TRUE(share_of_cores(sets, 0, sets[0]).cores.empty());
  EXPECT_EQ(share_of_cores(sets, 0, sets[0]).threads, 4);  // threads are not divided by the number of ranks
  EXPECT_EQ(share_of_cores(sets, 1, sets[1]).threads, 2);
  // Two ranks bound to one set divide it.
  EXPECT_EQ(share_of_cores(sets, 2, sets[2]).cores, (CoreSet{6}));
  EXPECT_EQ(share_of_cores(sets, 3, sets[3]).cores, (CoreSet{7}));
}

TEST(CoreSetTest, NobodyIsBoundWhereCoresAreShortOrUnclear) {
  const std::vector<CoreSet> crowded(5, range(4));
  EXPECT_TRUE(share_of_cores(crowded, 3, range(4)).cores.empty());
  EXPECT_EQ(share_of_cores(crowded, 3, range(4)).threads, 1);
  const std::vector<CoreSet> unclear = {{0, 1, 2, 3}, {0, 1, 2, 3}, {3, 4}};
  EXPECT_TRUE(share_of_cores(unclear, 0, range(4)).cores.empty());
  EXPECT_EQ(share_of_cores(unclear, 0, range(4)).threads, 1);
  const std::vector<CoreSet> unknown(2);
  EXPECT_TRUE(share_of_cores(unknown, 1, {}).cores.empty());
  EXPECT_EQ(share_of_cores(unknown, 1, {}).threads, 1);
}

TEST(CoreSetTest, TheProcessMovesToItsCores) {
  const CoreSet before = usable_core_set();
  ASSERT_FALSE(before.empty());
  auto order = by_topology(before);
  std::sort(order.begin(), order.end());
  EXPECT_EQ(order, before);
  EXPECT_TRUE(bind_process({before.back()}));
  EXPECT_EQ(usable_core_set(), CoreSet{before.back()});
  EXPECT_TRUE(bind_process(before));
  EXPECT_EQ(usable_core_set(), before);
}

}  // namespace
}  // namespace tessera
