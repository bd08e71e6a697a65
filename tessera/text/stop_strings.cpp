#include "tessera/text/stop_strings.h"

#include <algorithm>
#include <utility>

namespace tessera::text {

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  std::erase(strings_, "");
}

std::string StopStrings::add(const std::string& piece) {
  if (has_stopped_) return {};
  held_ += piece;
  // Stops at the stop string that ends first, so that the cuts between pieces do not matter; among several
  // that end there, at the longest.
  size_t begin = 0, end = std::string::npos;
  for (const std::string& stop : strings_) {
    const size_t found = held_.find(stop);
    if (found == std::string::npos) continue;
    const size_t stop_end = found + stop.size();
    if (stop_end < end || (stop_end == end && found < begin)) {
      begin = found;
      end = stop_end;
      stopped_by_ = stop;
    }
  }
  if (end != std::string::npos) {
    has_stopped_ = true;
    held_.resize(begin);
    return std::exchange(held_, {});
  }
  // Holds back the longest end of the text with which a stop string begins.
  size_t longest = 0;
  for (const std::string& stop : strings_) {
    for (size_t size = std::min(held_.size(), stop.size() - 1); size > longest; --size) {
      if (held_.compare(held_.size() - size, size, stop, 0, size) == 0) longest = size;
    }
  }
  std::string ready = held_.substr(0, held_.size() - longest);
  held_.erase(0, ready.size());
  return ready;
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

}  // namespace tessera::text
