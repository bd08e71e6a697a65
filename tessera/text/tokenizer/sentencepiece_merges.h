// The merges that a SentencePiece BPE model stands for.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tessera::text {

struct SentencePiece {
  std::string text;  // valid UTF-8
  float score = 0.0f;
  bool merges = true;  // made out of two others; control tokens and raw bytes are not
};

// Such a model merges the two neighbours whose union has the highest score. As a list of merges that is:
// every way to cut a piece into two others, by falling score, then by the order of the pieces, then with the
// shorter left part first.
std::vector<std::pair<std::string, std::string>> sentencepiece_merges(std::span<const SentencePiece> pieces);

}  // namespace tessera::text
