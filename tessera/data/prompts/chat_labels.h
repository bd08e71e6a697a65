// Decides which tokens of a conversation are trained.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/data/prompts/chat_spans.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::data {

// When an end-of-turn token is trained: after every turn (All), after trained turns (Turn), only after the
// last trained turn (Last), or never (None).
enum class EndRule { All, Turn, Last, None };

struct EndRules {
  EndRule eos = EndRule::Turn;  // for the tokenizer's EOS
  EndRule eot = EndRule::Turn;  // for other end-of-turn tokens
};

// Returns the index in `encoded` of the first of `end_tokens` within `closing`, or -1.
int64_t find_end_token(const text::Encoding& encoded, const text::ByteSpan& closing,
                       const std::vector<int32_t>& end_tokens);

// Returns the labels [tokens] of `encoded`, in which turn i is trained if train[i]. A token that reaches over
// the border of a trained range is trained, as in Axolotl: behind "[/INST] " such a token holds the first
// word of the answer. A token that reaches into masked bytes is not trained. `end_tokens` are the ids that
// may close a turn. Of these, `eos` (-1 if there is none) follows rules.eos, and all others follow rules.eot;
// if `eos_is_eot`, EOS is trained if either rule trains it.
std::vector<int32_t> label_chat(const text::Encoding& encoded, const std::vector<TurnSpans>& turns,
                                const std::vector<bool>& train, const EndRules& rules,
                                const std::vector<int32_t>& end_tokens, int32_t eos, bool eos_is_eot);

// Returns the labels that train everything from byte `begin` to the end of the turn `last`, which is its
// end-of-turn token, or else the end of the text. A token that reaches over `begin` is trained.
std::vector<int32_t> label_from(const text::Encoding& encoded, int64_t begin, const TurnSpans& last,
                                const std::vector<int32_t>& end_tokens);

// Returns whether a token reaches over one of these bytes of the text.
bool reaches_over(const text::Encoding& encoded, const std::vector<int64_t>& bytes);

}  // namespace tessera::data
