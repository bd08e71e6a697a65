// The formats of strings in JSON schemas, as regular expressions.
#pragma once

#include <string>

namespace tessera::text {

// Returns the pattern of the strings of a format, with anchors; null if the format is not known.
const char* format_pattern(const std::string& format);
// Returns the names of all formats.
std::string format_names();

}  // namespace tessera::text
