// The part of a tokenizer that turns one word into ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/text/tokenizer/vocabulary.h"
#include "tessera/text/tokenizer/word_cache.h"

namespace tessera::text {

// Buffers of one thread that encodes; reused between calls, and of use to one model alone.
struct ModelScratch {
  // A part of a word during the merges of BPE.
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
  // The best way of a unigram model to a position of the word: its last piece, and the start of that piece.
  struct PathNode {
    double score;
    int32_t id;
    int32_t begin;
  };

  WordCache cache;
  std::vector<WordToken> tokens;
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::vector<PathNode> path;
};

// Immutable; several threads may encode, each with a scratch of its own.
class WordModel {
 public:
  virtual ~WordModel() = default;

  // Appends the tokens of `word`, which must be valid UTF-8, not empty and shorter than 2^31 bytes. Their
  // lengths add up to the word's, unless no token stands for any of it. Throws Error(Model) if the word needs
  // an unknown token and there is none.
  void encode(std::string_view word, ModelScratch& scratch, std::vector<WordToken>& out) const {
    const bool is_short = word.size() <= WordCache::kMaxBytes;
    if (is_short && scratch.cache.find(WordCache::Key(word), out)) return;
    scratch.tokens.clear();
    encode_new(word, scratch);
    if (is_short) scratch.cache.insert(WordCache::Key(word), scratch.tokens);
    out.insert(out.end(), scratch.tokens.begin(), scratch.tokens.end());
  }

  const Vocabulary& vocabulary() const { return vocabulary_; }
  // Returns the id of the token that stands for unknown text.
  std::optional<int32_t> unk_id() const { return unk_id_; }

 protected:
  WordModel(Vocabulary vocabulary, std::optional<int32_t> unk_id)
      : vocabulary_(std::move(vocabulary)), unk_id_(unk_id) {}

  // Appends the tokens of a word that the cache does not hold to `scratch.tokens`, which is empty.
  virtual void encode_new(std::string_view word, ModelScratch& scratch) const = 0;

  // Returns the unknown token's id, or throws the error for `word` that needs it.
  int32_t need_unk_id(std::string_view word) const;

 private:
  Vocabulary vocabulary_;
  std::optional<int32_t> unk_id_;
};

}  // namespace tessera::text
