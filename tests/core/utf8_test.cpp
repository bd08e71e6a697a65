#include "tessera/core/utf8.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Utf8Test, FindsTheFirstInvalidByte) {
  EXPECT_EQ(find_invalid_utf8("plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"), -1);
  EXPECT_EQ(find_invalid_utf8("ab\xff"), 2);
  EXPECT_EQ(find_invalid_utf8("\xc0\x80"), 0);          // overlong
  EXPECT_EQ(find_invalid_utf8("a\xed\xa0\x80"), 1);     // surrogate
  EXPECT_EQ(find_invalid_utf8("\xf4\x90\x80\x80"), 0);  // above U+10FFFF
  EXPECT_EQ(find_invalid_utf8("abc\xe2\x82"), 3);       // cut short
}

TEST(Utf8Test, RepairReplacesEachMaximalSubpart) {
  EXPECT_EQ(repair_utf8("plain"), "plain");
  EXPECT_EQ(repair_utf8("a\xff\xfe"), "a\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(repair_utf8("\xe2\x82x"), "\xef\xbf\xbdx");
  EXPECT_EQ(repair_utf8("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(repair_utf8("\xf0\x9f\x98"), "\xef\xbf\xbd");
}

TEST(Utf8Test, StripsWhatPythonCallsSpace) {
  EXPECT_EQ(strip_spaces(" \t\xc2\xa0word\xe3\x80\x80\x1c"), "word");
  EXPECT_EQ(strip_spaces(" a b ", false), " a b");
  EXPECT_EQ(strip_spaces(" a b ", true, false), "a b ");
  EXPECT_EQ(strip_spaces("\xff \xc2"), "\xff \xc2");
  EXPECT_EQ(strip_spaces(" \xe2\x80\x83\n"), "");
}

}  // namespace
}  // namespace tessera
