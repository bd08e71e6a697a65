// The normalizer of SentencePiece's own files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/text/tokenizer/normalizer.h"

namespace tessera::text {

struct SentencePieceNormalizerOptions {
  std::string charsmap;  // charsmap.h
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  bool space_is_suffix = false;       // puts the dummy prefix behind the text
  bool prefix_at_start_only = false;  // no dummy prefix behind a control token
  std::vector<std::string> keeps;     // texts that no rule changes: user-defined pieces
};

// Replaces, at each position, the longest text that the map has [google/sentencepiece normalizer.cc], where
// `tokenizers` goes by graphemes (make_precompiled_normalizer()). `place` names the file in messages.
std::unique_ptr<Normalizer> make_sentencepiece_normalizer(SentencePieceNormalizerOptions options,
                                                          const std::string& place);

}  // namespace tessera::text
