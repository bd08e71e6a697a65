// Text inside HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// Writes `text`, which is valid UTF-8, as the content of an element or of an attribute in double quotes: & <
// > " and ' become entities, and control characters other than tab and line feed, which HTML forbids, become
// U+FFFD.
std::string html_text(std::string_view text);

}  // namespace tessera
