// Byte-pair encoding of one pre-tokenised word ([Note: BPE merging] in bpe.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/text/tokenizer/vocabulary.h"
#include "tessera/text/tokenizer/word_cache.h"

namespace tessera::text {

struct BpeOptions {
  // Splits words into bytes, spelled in the byte-level alphabet; else into characters.
  bool byte_level = true;
  std::optional<std::string> unk_token;
  bool fuse_unk = false;
  // Turns a character that the vocabulary lacks into the tokens "<0x..>" of its bytes (only if not
  // byte_level).
  bool byte_fallback = false;
  // Encodes a word that is a token as that token, whatever the merges say.
  bool ignore_merges = false;
};

// Buffers of one thread that encodes; reused between calls.
struct BpeScratch {
  struct Symbol {
    int32_t id;
    uint32_t length;
    int32_t previous, next;
  };
  struct Candidate {
    uint32_t rank;
    uint32_t position;
    int32_t id;
  };

  WordCache cache;
  std::vector<WordToken> tokens;
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

// The model of a BPE tokenizer. It is immutable once the merges are added.
class Bpe {
 public:
  Bpe(Vocabulary vocabulary, BpeOptions options);

  // Adds a merge, whose rank is the number of calls before it; a pair given twice takes the later rank.
  // Returns "", or the name of a token that the vocabulary lacks (left, right or their union).
  std::string add_merge(std::string_view left, std::string_view right);

  // Appends the tokens of `word`, which must not be empty and must be shorter than 2^31 bytes. Their lengths
  // add up to the word's, unless no token stands for any of it.
  void encode(std::string_view word, BpeScratch& scratch, std::vector<WordToken>& out) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  const BpeOptions& options() const { return options_; }

 private:
  struct Merge {
    uint64_t key = kNoKey;
    uint32_t rank = 0;
    int32_t id = -1;
  };
  static constexpr uint64_t kNoKey = ~uint64_t{0};
  static constexpr uint32_t kNoRank = ~uint32_t{0};

  static uint64_t pair_key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t home(uint64_t key) const { return (key * 0x9e3779b97f4a7c15ull) >> shift_; }
  const Merge* find_merge(int32_t left, int32_t right) const;
  void grow();

  void split(std::string_view word, std::vector<WordToken>& symbols) const;
  void split_chars(std::string_view word, std::vector<WordToken>& symbols) const;
  void merge_short(std::vector<WordToken>& symbols) const;
  void merge_long(std::vector<WordToken>& symbols, BpeScratch& scratch) const;

  Vocabulary vocabulary_;
  BpeOptions options_;
  int32_t unk_id_ = -1;
  std::array<int32_t, 256> byte_ids_;      // token of each byte (byte_level)
  std::array<int32_t, 256> fallback_ids_;  // token "<0x..>" of each byte
  Vocabulary whole_words_;                 // raw bytes of a token -> id, for ignore_merges
  std::vector<Merge> merges_;              // hash table with open addressing, at most half full
  size_t num_merges_ = 0;
  uint32_t next_rank_ = 0;
  int shift_ = 64;
};

}  // namespace tessera::text
