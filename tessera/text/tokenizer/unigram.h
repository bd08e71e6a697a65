// A unigram language model: of all ways to cut a word into pieces it takes the most probable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/text/tokenizer/piece_trie.h"
#include "tessera/text/tokenizer/word_model.h"

namespace tessera::text {

struct UnigramPiece {
  std::string text;
  double score = 0.0;
  bool in_text = true;  // the text may contain it; control tokens and raw bytes are not looked for
};

struct UnigramOptions {
  std::optional<int32_t> unk_id;
  // Turns unknown characters into the tokens "<0x..>" of their bytes, if all of these are in the vocabulary.
  bool byte_fallback = false;
  // The score of a character without a piece.
  double unk_score = 0.0;
  // Follows SentencePiece, which rounds the score of each path to single precision, instead of `tokenizers`.
  bool single_precision = false;
};

// [Note: unigram paths]
// One pass from left to right keeps the best path to each position (Viterbi, 1967): each piece that begins at
// a position is tried as the last one of the path to its end, and replaces the path there only if it is
// strictly better. A character that is no piece counts as unknown. The pieces follow from the end backwards;
// neighbours that are unknown count as one.
class Unigram final : public WordModel {
 public:
  // `vocabulary` holds the text of each piece under its index.
  Unigram(Vocabulary vocabulary, const std::vector<UnigramPiece>& pieces, UnigramOptions options);

 private:
  void encode_new(std::string_view word, ModelScratch& scratch) const override;
  template <class Score>
  void find_best_path(std::string_view word, std::vector<ModelScratch::PathNode>& path) const;
  void add_unknown(std::string_view part, std::string_view word, std::vector<WordToken>& tokens) const;

  UnigramOptions options_;
  std::vector<double> scores_;
  PieceTrie trie_;
  std::vector<int32_t> byte_ids_;  // the token "<0x..>" of each byte; empty if there is no byte fallback
};

}  // namespace tessera::text
