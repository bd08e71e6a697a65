// Text inside HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// Writes `text` as the content of an element or of an attribute in double quotes: & < > " and ' become
// entities. U+FFFD takes the place of what is not UTF-8, of control characters other than tab and line feed,
// which HTML forbids, and of marks of bidirectional text, which would reach beyond the element.
std::string html_text(std::string_view text);

}  // namespace tessera
