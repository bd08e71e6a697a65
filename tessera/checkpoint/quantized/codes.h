// The ways in which files lay out the codes of a weight.
#pragma once

#include <memory>

#include "tessera/checkpoint/quantized/coded_weight.h"

namespace tessera::checkpoint::quantized {

// A code a byte, [out, in]. plus: is added to each code, modulo 256.
std::shared_ptr<const Codes> byte_codes(const Files& files, const io::TensorInfo& tensor, uint8_t plus = 0);
// Two codes of four bits a byte, the first one in the low half: [out, in / 2].
std::shared_ptr<const Codes> nibble_codes(const Files& files, const io::TensorInfo& tensor);
// Codes of `bits` bits along the columns of a matrix of 32-bit words: code k of a row has bits [k * bits,
// (k + 1) * bits) of the row's words, counted from the lowest bit of the first word. [out, words]
std::shared_ptr<const Codes> word_codes(const Files& files, const io::TensorInfo& tensor, int bits);
// Such codes along the rows: a column of the matrix has the codes of one row of the weight. [words, out]
std::shared_ptr<const Codes> turned_word_codes(const Files& files, const io::TensorInfo& tensor, int bits);
// Four bits, eight rows of the weight a word, in AWQ's order: [in, out / 8].
std::shared_ptr<const Codes> awq_codes(const Files& files, const io::TensorInfo& tensor);
// Two codes of four bits a byte, the first one in the high half unless `low_first`, in the flat order of the
// matrix [rows, columns]. The tensor may have any type and shape; its bytes count.
std::shared_ptr<const Codes> flat_nibbles(const Files& files, const io::TensorInfo& tensor, int64_t columns,
                                          bool low_first = false);

// Returns the words that hold `count` codes of `bits` bits.
constexpr int64_t words_of(int64_t count, int64_t bits) { return (count * bits + 31) / 32; }
// Returns code k of words that lie `stride` apart, of which the first is word `first_word` of all.
inline uint8_t code_at(const int32_t* words, int64_t stride, int64_t first_word, int64_t k, int bits) {
  const int64_t bit = k * bits, word = bit / 32 - first_word;
  const int shift = static_cast<int>(bit % 32);
  uint64_t pair = static_cast<uint32_t>(words[word * stride]);
  if (shift + bits > 32)
    pair |= static_cast<uint64_t>(static_cast<uint32_t>(words[(word + 1) * stride])) << 32;
  return static_cast<uint8_t>(pair >> shift & ((1u << bits) - 1));
}
// Returns the place in its word, counted in nibbles from the low end, of row or column 8 w + i of AWQ.
inline int awq_place(int64_t i) {
  constexpr int kPlaces[] = {0, 4, 1, 5, 2, 6, 3, 7};
  return kPlaces[i % 8];
}

}  // namespace tessera::checkpoint::quantized
