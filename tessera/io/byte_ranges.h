// The bytes of a file or tensor that have been written so far.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace tessera::io {

// A set of bytes kept as disjoint, non-touching ranges.
class ByteRanges {
 public:
  // Adds the bytes [begin, end); nothing if the range is empty.
  void add(int64_t begin, int64_t end) {
    if (begin >= end) return;
    auto next = ranges_.upper_bound(begin);
    if (next != ranges_.begin()) {
      const auto before = std::prev(next);
      if (before->second >= begin) {
        begin = before->first;
        end = std::max(end, before->second);
        ranges_.erase(before);
      }
    }
    while (next != ranges_.end() && next->first <= end) {
      end = std::max(end, next->second);
      next = ranges_.erase(next);
    }
    ranges_.emplace(begin, end);
  }

  // Returns the first byte of [0, size) that is not in the set, or -1.
  int64_t first_missing(int64_t size) const {
    if (size == 0) return -1;
    const auto first = ranges_.begin();
    if (first == ranges_.end() || first->first > 0) return 0;
    return first->second >= size ? -1 : first->second;
  }

 private:
  std::map<int64_t, int64_t> ranges_;  // begin -> end
};

}  // namespace tessera::io
