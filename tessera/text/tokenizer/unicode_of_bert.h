// Properties of characters as of Unicode 8 and 9, by whose tables `tokenizers` runs the steps of BERT.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::text {

enum BertFlags : uint8_t {
  kBertControl = 1,      // control, format and private use characters but tab and line ends (Unicode 8)
  kBertPunctuation = 2,  // punctuation (Unicode 8) and ASCII symbols
  kBertAccent = 4,       // non-spacing marks (Unicode 8)
  kBertMark = 8,         // combining marks (Unicode 9)
  kBertSpace = 16,       // white space
  kBertChinese = 32,     // the blocks of Chinese characters
};

// Flags of every code point, built once from ICU.
class BertCharTable {
 public:
  static const BertCharTable& instance();
  // `code_point` must be below 0x110000.
  uint8_t flags(uint32_t code_point) const { return flags_[code_point]; }

 private:
  BertCharTable();
  std::vector<uint8_t> flags_;
};

// Returns a number for the script of a character as of Unicode 9, in which Japanese kana count as Han; -1 for
// a space and for characters without a script, which belong to any.
int32_t script_of_unigram(uint32_t code_point);

}  // namespace tessera::text
