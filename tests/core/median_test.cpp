#include "tessera/core/median.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(MedianTest, IsTheMiddleInOrder) {
  EXPECT_EQ(median({3.0}), 3.0);
  EXPECT_EQ(median({9.0, -1.0, 2.0}), 2.0);
  EXPECT_EQ(median({5.0, 5.0, 1.0, 7.0, 0.0}), 5.0);
}

TEST(MedianTest, IsTheMeanOfTheMiddleTwo) {
  EXPECT_EQ(median({4.0, 1.0}), 2.5);
  EXPECT_EQ(median({8.0, 1.0, 100.0, 4.0}), 6.0);
  EXPECT_EQ(median({2.0, 2.0, 2.0, 2.0}), 2.0);
}

TEST(MedianTest, OfNothingIsZero) { EXPECT_EQ(median({}), 0.0); }

}  // namespace
}  // namespace tessera
