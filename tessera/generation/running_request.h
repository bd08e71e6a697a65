// A request that a Generator works on.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/generation/continuation.h"
#include "tessera/generation/drafts.h"
#include "tessera/nn/kv_cache.h"
#include "tessera/scoring/token_log_probs.h"

namespace tessera::generation {

// Its text is the prompt with the tokens of the answer so far behind it. The cache holds a beginning of the
// text, and what is left is fed to the model: several tokens at once by a pass over prompts, or one by a
// decoding step. The next token is chosen when all of the text has been fed.
struct RunningRequest : Continuation {
  using Continuation::Continuation;

  static constexpr int64_t kNowhere = -1;
  int64_t request = 0;
  int64_t sequence = kNowhere;                    // its number in the cache; kNowhere while it waits
  int64_t num_fed = 0;                            // tokens of the text that the cache holds
  std::vector<scoring::TokenLogProbs> of_prompt;  // until on_prompt_log_probs is called
  // Keys of the pages that the text fills, and the number of those that the cache has been given.
  std::vector<nn::PageKey> keys;
  int64_t num_given_keys = 0;
  bool has_started = false;  // it has been in the cache, now or before
  Draft draft;               // empty between two steps
  DraftPace draft_pace;

  int64_t prompt_size() const { return std::ssize(prompt); }
  int64_t text_size() const { return prompt_size() + std::ssize(result.token_ids); }
  // Returns the tokens [begin, end) of the text.
  std::vector<int64_t> tokens(int64_t begin, int64_t end) const;
  // Returns the next `count` tokens of the text that are to be fed.
  models::NewTokens next_tokens(int64_t count, int64_t num_logits = 1) const {
    return {sequence, tokens(num_fed, num_fed + count), num_logits, options.adapter};
  }
  // Tells whether the model has seen all of the text, so that a token can be chosen.
  bool is_fed() const { return num_fed == text_size(); }
  // Makes the keys of all pages that the text fills by now: each is a checksum of the key before it, or the
  // adapter and the salt of the request, and the tokens of the page.
  void add_keys();
  // Tells whether the log-probabilities of the prompt are wanted and have not been told.
  bool scores_prompt() const { return options.on_prompt_log_probs && result.token_ids.empty(); }
};

}  // namespace tessera::generation
