// Derives the list of merges that a SentencePiece BPE model stands for.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tessera::text {

struct SentencePiece {
  std::string text;  // valid UTF-8
  float score = 0.0f;
  bool merges = true;  // may be made by a merge; control tokens and raw bytes may not
};

// Returns the merges in the order of their ranks. A SentencePiece model merges the two neighbours whose union
// has the highest score. In a list of merges that is every way to cut a piece into two others, by falling
// score, then by the order of the pieces, then with the shorter left part first.
std::vector<std::pair<std::string, std::string>> sentencepiece_merges(std::span<const SentencePiece> pieces);

}  // namespace tessera::text
