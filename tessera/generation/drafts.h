// Drafts: guesses of the tokens that come next, which one pass of the model checks together.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/models/common/causal_lm.h"

namespace tessera::generation {

inline constexpr int64_t kMostDraftTokens = 15;  // a step has few rows (Generator::make_drafts())

// Returns why drafts of texts of the model are not checked; empty if they are.
std::string why_no_drafts(const models::CausalLM& model);

// Guesses how a text goes on: looks for its last four tokens earlier in the text, for the last three if they
// have not occurred, and then for the last two. Returns `most` tokens that followed where they occurred last,
// or nothing. Where these reach the end of the text, the guess goes on with its own first tokens.
std::vector<int64_t> draft_tokens(std::span<const int64_t> text, int64_t most);

// The draft behind the text of a request, while one step checks it.
struct Draft {
  std::vector<int64_t> tokens;
  size_t num_right = 0;   // how many of its first tokens were chosen
  int64_t first_row = 0;  // of the step's logits, that after the last token of the text
};

// Decides when a request gets drafts: at every step. After a draft of which nothing was right it pauses for 1
// step, then for 2, 4, ... and at most 32, until a draft is right again.
class DraftPace {
 public:
  // Tells whether the next step may check a draft; it is asked once a step.
  bool is_due() { return left_ == 0 || --left_ == 0; }
  // Takes how many tokens of a draft were right.
  void note(size_t num_right);

 private:
  int64_t pause_ = 0, left_ = 0;  // steps of the last pause, and those that are left of it
};

}  // namespace tessera::generation
