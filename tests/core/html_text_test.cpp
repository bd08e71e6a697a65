#include "tessera/core/html_text.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(HtmlText, EntitiesAndForbiddenCharacters) {
  EXPECT_EQ(html_text("a & <b> \"c\" 'd'"), "a &amp; &lt;b&gt; &quot;c&quot; &#39;d&#39;");
  EXPECT_EQ(html_text("tab\tline\nend"), "tab\tline\nend");
  EXPECT_EQ(html_text(std::string("\0\r\x1b\x7f", 4)), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(html_text("\u0085\u00a0\u00e9\u4e2d"), "\uFFFD\u00a0\u00e9\u4e2d");
  EXPECT_EQ(html_text(""), "");
  EXPECT_EQ(html_text("a\u202eb\u2066\u200f\u061c"), "a\uFFFDb\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(html_text("a\xff<\xe2\x82"), "a\uFFFD&lt;\uFFFD");
}

}  // namespace
}  // namespace tessera
