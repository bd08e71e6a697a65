#include "tessera/core/strings.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(StringsTest, EditDistance) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("trian", "train"), 1);
  EXPECT_EQ(edit_distance("ba", "ab"), 1);
  EXPECT_EQ(edit_distance("abcd", "badc"), 2);
}

TEST(StringsTest, NearestName) {
  const std::vector<std::string> names = {"learning_rate", "lr_scheduler", "seed"};
  EXPECT_EQ(nearest_name("learning_rte", names), "learning_rate");
  EXPECT_EQ(nearest_name("sead", names), "seed");
  EXPECT_EQ(nearest_name("zzzzzzzz", names), "");
}

TEST(StringsTest, SizesAndTimes) {
  EXPECT_EQ(format_bytes(17), "17 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(int64_t{3} << 30), "3.0 GiB");
  EXPECT_EQ(format_duration(12.2), "12s");
  EXPECT_EQ(format_duration(200), "3m20s");
  EXPECT_EQ(format_duration(7500), "2h05m");
}

TEST(StringsTest, GroupDigits) {
  EXPECT_EQ(group_digits(0), "0");
  EXPECT_EQ(group_digits(999), "999");
  EXPECT_EQ(group_digits(1000), "1,000");
  EXPECT_EQ(group_digits(-1234567), "-1,234,567");
  EXPECT_EQ(group_digits(-100), "-100");
}

TEST(StringsTest, Lower) {
  EXPECT_EQ(lower("CUDA:0 \xc3\x84Z"), "cuda:0 \xc3\x84z");
  EXPECT_EQ(lower(""), "");
}

TEST(StringsTest, FirstLine) {
  EXPECT_EQ(first_line("one\ntwo\nthree"), "one");
  EXPECT_EQ(first_line("one"), "one");
  EXPECT_EQ(first_line("\ntwo"), "");
}

}  // namespace
}  // namespace tessera
