// Text inside HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// `text`, valid UTF-8, as the content of an element or of an attribute in double quotes: & < > " and ' are
// written as entities, control characters other than tab and line feed, which HTML forbids, as U+FFFD.
std::string html_text(std::string_view text);

}  // namespace tessera
