// The ids that the post-processor puts around encoded texts.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::text {

// A special token of the post-processor (`text` is kNoText), or the place of a text.
struct PostPiece {
  static constexpr int32_t kNoText = -1;

  int32_t text = kNoText;  // 0 for the first text, 1 for the second
  int32_t id = -1;
  int32_t type_id = 0;
};

struct PostProcessor {
  // The pieces for one text, and for a pair. An empty list of the latter means that the tokenizer has no rule
  // for pairs.
  std::vector<PostPiece> single = {{.text = 0}};
  std::vector<PostPiece> pair = {{.text = 0}, {.text = 1, .type_id = 1}};
};

}  // namespace tessera::text
