// WordPiece: the longest piece that the rest of the word begins with, again and again.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/text/tokenizer/piece_trie.h"
#include "tessera/text/tokenizer/word_model.h"

namespace tessera::text {

struct WordPieceOptions {
  std::optional<int32_t> unk_id;
  std::string continuing_prefix;  // spells the pieces that do not begin a word: "##ing"
  size_t max_chars = 100;         // longer words are unknown
};

// A word of which any part has no piece is unknown as a whole.
class WordPiece final : public WordModel {
 public:
  WordPiece(Vocabulary vocabulary, const WordPieceOptions& options);

 private:
  void encode_new(std::string_view word, ModelScratch& scratch) const override;

  size_t max_chars_;
  PieceTrie trie_;
  int32_t continuing_root_;  // the node behind the prefix, from which later pieces are looked for
};

}  // namespace tessera::text
