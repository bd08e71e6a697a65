#include "tessera/core/mismatch_list.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(MismatchListTest, TellsKindsInTheirOrder) {
  MismatchList list({"missing", "of another shape"});
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.text(), "");
  list.add("of another shape", "c (got [2], need [3])");
  list.add("missing", "a");
  list.add("missing", "b");
  EXPECT_FALSE(list.empty());
  EXPECT_EQ(list.text(), "2 missing: a, b; 1 of another shape: c (got [2], need [3])");
}

TEST(MismatchListTest, ListsTwentyNamesOfAllKindsTogether) {
  MismatchList list({"missing", "unknown", "odd"});
  for (int i = 0; i < 18; ++i) list.add("missing", "m");
  for (int i = 0; i < 5; ++i) list.add("unknown", "u" + std::to_string(i));
  list.add("odd", "o");
  const std::string text = list.text();
  EXPECT_NE(text.find("; 5 unknown: u0, u1, ...; 1 odd"), std::string::npos) << text;
  EXPECT_EQ(text.find("u2"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("1 odd")) << text;
}

}  // namespace
}  // namespace tessera
