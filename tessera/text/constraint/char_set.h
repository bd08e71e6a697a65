// Sets of Unicode characters, and the bytes of their UTF-8.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace tessera::text {

struct CharRange {
  uint32_t first = 0, last = 0;  // both belong to it
};

// Surrogates are never part of a set.
class CharSet {
 public:
  CharSet() = default;
  CharSet(std::initializer_list<CharRange> ranges) {
    for (const CharRange& range : ranges) add(range);
  }
  static CharSet all() { return {{0, 0x10ffff}}; }

  void add(CharRange range);
  void add(const CharSet& other) {
    for (const CharRange& range : other.ranges_) add(range);
  }
  // Returns all characters that are not in the set.
  CharSet inverse() const;
  // Returns the characters that are in both sets.
  CharSet common(const CharSet& other) const;
  bool contains(uint32_t character) const;
  bool empty() const { return ranges_.empty(); }
  // Returns the ranges in order; no two of them touch.
  const std::vector<CharRange>& ranges() const { return ranges_; }

 private:
  std::vector<CharRange> ranges_;
};

struct ByteRange {
  uint8_t first = 0, last = 0;
};

// Returns the UTF-8 of a set: sequences of ranges of bytes. A character is in the set if its bytes lie in
// those of one sequence.
std::vector<std::vector<ByteRange>> utf8_of(const CharSet& set);

}  // namespace tessera::text
