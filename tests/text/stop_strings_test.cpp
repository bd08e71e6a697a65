#include "tessera/text/stop_strings.h"

#include <gtest/gtest.h>

namespace tessera::text {
namespace {

// Returns the part that is shown of a text which comes in pieces of `size` bytes.
std::string shown(const std::vector<std::string>& stops, const std::string& text, size_t size) {
  StopStrings strings(stops);
  std::string out;
  for (size_t i = 0; i < text.size() && !strings.has_stopped(); i += size)
    out += strings.add(text.substr(i, size));
  if (!strings.has_stopped()) out += strings.finish();
  return out;
}

TEST(StopStrings, EndTheTextHoweverItIsCut) {
  for (const size_t size : {1, 2, 3, 5, 100}) {
    EXPECT_EQ(shown({"\n\n"}, "one\ntwo\n\nthree", size), "one\ntwo");
    EXPECT_EQ(shown({"End", "END"}, "the END and the End", size), "the ");
    EXPECT_EQ(shown({"aab"}, "aaaab", size), "aa");
    EXPECT_EQ(shown({"abcd", "bc"}, "xabcd", size), "xa");
    EXPECT_EQ(shown({"bc", "abc"}, "xabcd", size), "x");
    EXPECT_EQ(shown({"stop"}, "no sto", size), "no sto");
    EXPECT_EQ(shown({}, "all", size), "all");
    EXPECT_EQ(shown({""}, "all", size), "all");
    EXPECT_EQ(shown({"all"}, "all", size), "");
  }
}

TEST(StopStrings, ShowWhatIsCertainAtOnce) {
  StopStrings strings({"###"});
  EXPECT_EQ(strings.add("a #"), "a ");
  EXPECT_FALSE(strings.has_stopped());
  EXPECT_EQ(strings.add("#b"), "##b");
  EXPECT_EQ(strings.stopped_by(), "");
  EXPECT_EQ(strings.add("###c"), "");
  EXPECT_TRUE(strings.has_stopped());
  EXPECT_EQ(strings.stopped_by(), "###");
  EXPECT_EQ(strings.add("d"), "");
}

}  // namespace
}  // namespace tessera::text
