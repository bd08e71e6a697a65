// Finds marks in a text that grows.
#pragma once

#include <algorithm>
#include <string_view>

namespace tessera::text {

// Returns the first place from `from` on where the mark stands, or begins at the end of the text.
inline size_t find_mark(std::string_view text, std::string_view mark, size_t from) {
  const size_t found = text.find(mark, from);
  if (found != std::string_view::npos) return found;
  for (size_t at = std::max(from, text.size() - std::min(text.size(), mark.size() - 1)); at < text.size();
       ++at) {
    if (mark.starts_with(text.substr(at))) return at;
  }
  return text.size();
}

}  // namespace tessera::text
