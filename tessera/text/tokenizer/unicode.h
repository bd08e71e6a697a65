// The Unicode character classes that pre-tokenisers are written in.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::text {

enum CharFlags : uint8_t {
  kLetter = 1,    // \p{L}
  kNumber = 2,    // \p{N}
  kSpace = 4,     // \s: White_Space
  kWord = 8,      // \w: alphabetic, mark, decimal number, connector punctuation, join control
  kNewline = 16,  // \r and \n
  kNumeric = 32,  // characters at which the Digits pre-tokeniser splits
};

// Flags of every code point. The table is built once from ICU, with the letters and numbers that Unicode 15.1
// to 17 added, so that ids do not depend on the age of the ICU at hand.
class CharTable {
 public:
  static const CharTable& instance();

  uint8_t flags(uint32_t code_point) const {
    return code_point < kTableSize ? flags_[code_point] : high_flags(code_point);
  }

 private:
  static constexpr uint32_t kTableSize = 0x40000;

  CharTable();
  static uint8_t high_flags(uint32_t code_point);

  std::vector<uint8_t> flags_;
};

}  // namespace tessera::text
