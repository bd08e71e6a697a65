// Reads the files of SentencePiece: tokenizer.model, spiece.model, sentencepiece.bpe.model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::text {

// The fields of the file that tokenizing depends on, with their defaults [google/sentencepiece
// sentencepiece_model.proto].
struct SentencePieceModel {
  enum class Type : int32_t { Unigram = 1, Bpe = 2, Word = 3, Char = 4 };
  enum PieceType : int32_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
  };
  struct Piece {
    std::string text;
    float score = 0.0f;
    int32_t type = kNormal;
  };

  std::vector<Piece> pieces;
  Type type = Type::Unigram;
  bool byte_fallback = false;
  bool space_is_suffix = false;  // treat_whitespace_as_suffix
  int32_t unk_id = 0, bos_id = 1, eos_id = 2, pad_id = -1;
  std::string charsmap;  // precompiled_charsmap of the normalizer
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
  bool has_denormalizer = false;
};

// Returns whether the bytes may be such a file; they begin with its first piece.
bool is_sentencepiece_model(std::string_view bytes);

// Throws Error(Model) for a malformed file, naming `file`: text that is not UTF-8, a score that is not
// finite, a piece given twice, no unknown piece.
SentencePieceModel read_sentencepiece_model(std::string_view bytes, const std::string& file);

}  // namespace tessera::text
