#include "tessera/text/constraint/char_set.h"

#include <algorithm>
#include <string>

#include "tessera/core/utf8.h"

namespace tessera::text {
namespace {

constexpr CharRange kSurrogates = {0xd800, 0xdfff};

// Adds the sequences of a range whose first and last character take equally many bytes.
void add_sequences(CharRange range, size_t size, std::vector<std::vector<ByteRange>>& sequences) {
  // A character that is cut at a byte has six bits in each byte behind it. Unless a range covers all values
  // of those bits, it is split where they begin anew.
  for (size_t behind = 1; behind < size; ++behind) {
    const uint32_t bits = (1U << (6 * behind)) - 1;
    if ((range.first & ~bits) == (range.last & ~bits)) continue;
    if ((range.first & bits) != 0) {
      add_sequences({range.first, range.first | bits}, size, sequences);
      return add_sequences({(range.first | bits) + 1, range.last}, size, sequences);
    }
    if ((range.last & bits) != bits) {
      add_sequences({range.first, (range.last & ~bits) - 1}, size, sequences);
      return add_sequences({range.last & ~bits, range.last}, size, sequences);
    }
  }
  std::string first, last;
  append_utf8(first, range.first);
  append_utf8(last, range.last);
  std::vector<ByteRange>& sequence = sequences.emplace_back();
  for (size_t i = 0; i < size; ++i)
    sequence.push_back({static_cast<uint8_t>(first[i]), static_cast<uint8_t>(last[i])});
}

}  // namespace

void CharSet::add(CharRange range) {
  if (range.first > range.last) return;
  if (range.first <= kSurrogates.last && range.last >= kSurrogates.first) {
    if (range.first < kSurrogates.first) add({range.first, kSurrogates.first - 1});
    if (range.last > kSurrogates.last) add({kSurrogates.last + 1, range.last});
    return;
  }
  const auto begin = std::ranges::find_if(
      ranges_, [&](const CharRange& each) { return uint64_t{each.last} + 1 >= range.first; });
  const auto end = std::find_if(begin, ranges_.end(),
                                [&](const CharRange& each) { return each.first > uint64_t{range.last} + 1; });
  if (begin != end) {
    range.first = std::min(range.first, begin->first);
    range.last = std::max(range.last, std::prev(end)->last);
  }
  ranges_.insert(ranges_.erase(begin, end), range);
}

CharSet CharSet::inverse() const {
  CharSet result;
  uint32_t next = 0;
  for (const CharRange& range : ranges_) {
    if (range.first > next) result.add({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= 0x10ffff) result.add({next, 0x10ffff});
  return result;
}

CharSet CharSet::common(const CharSet& other) const {
  CharSet outside = inverse();
  outside.add(other.inverse());
  return outside.inverse();
}

bool CharSet::contains(uint32_t character) const {
  return std::ranges::any_of(ranges_, [character](const CharRange& range) {
    return range.first <= character && character <= range.last;
  });
}

std::vector<std::vector<ByteRange>> utf8_of(const CharSet& set) {
  constexpr CharRange kSizes[] = {{0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xffff}, {0x10000, 0x10ffff}};
  std::vector<std::vector<ByteRange>> sequences;
  for (const CharRange& range : set.ranges()) {
    for (size_t size = 1; size <= std::size(kSizes); ++size) {
      const CharRange& of_size = kSizes[size - 1];
      const CharRange part = {std::max(range.first, of_size.first), std::min(range.last, of_size.last)};
      if (part.first <= part.last) add_sequences(part, size, sequences);
    }
  }
  return sequences;
}

}  // namespace tessera::text
