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
#include "tessera/text/tokenizer/word_model.h"

namespace tessera::text {

struct BpeOptions {
  // Splits words into bytes, spelled in the byte-level alphabet; else into characters.
  bool byte_level = true;
  std::optional<int32_t> unk_id;
  bool fuse_unk = false;
  // Turns a character that the vocabulary lacks into the tokens "<0x..>" of its bytes. Not together with
  // byte_level.
  bool byte_fallback = false;
  // Encodes a word that is a token as that token, whatever the merges say.
  bool ignore_merges = false;
  // Spelled before each character of a word but the first, and behind its last one ("</w>").
  std::string continuing_prefix, word_suffix;
};

// The model of a BPE tokenizer. It is immutable once the merges are added.
class Bpe final : public WordModel {
 public:
  Bpe(Vocabulary vocabulary, BpeOptions options);

  // Adds a merge; a pair given twice takes the later rank. Of several merges of one rank the leftmost in the
  // word comes first. Returns "", or the name of a token that the vocabulary lacks (left, right or their
  // union).
  std::string add_merge(std::string_view left, std::string_view right, uint32_t rank);

 private:
  // Ids of the 256 bytes, or of the first characters of Unicode; -1 where the vocabulary has none.
  using ByteIds = std::array<int32_t, 256>;
  // Places in a word, which differ in what is spelled around a character.
  enum Place : uint8_t { kAlone, kFirst, kMiddle, kLast };
  static constexpr size_t kNumPlaces = 4;

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

  void encode_new(std::string_view word, ModelScratch& scratch) const override;
  std::string spelled(std::string_view character, Place place) const;
  void split(std::string_view word, std::vector<WordToken>& symbols) const;
  void split_chars(std::string_view word, std::vector<WordToken>& symbols) const;
  void merge_short(std::vector<WordToken>& symbols) const;
  void merge_long(std::vector<WordToken>& symbols, ModelScratch& scratch) const;

  BpeOptions options_;
  bool has_affixes_;
  int32_t unk_id_or_none_;
  std::array<ByteIds, kNumPlaces>
      byte_ids_;               // token of each byte (byte_level), or of each character below 256
  ByteIds fallback_ids_;       // token "<0x..>" of each byte
  Vocabulary whole_words_;     // raw bytes of a token -> id, for ignore_merges
  std::vector<Merge> merges_;  // hash table with open addressing, at most half full
  size_t num_merges_ = 0;
  int shift_ = 64;
};

}  // namespace tessera::text
