// Which tokens of a conversation are trained.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/data/prompts/chat_spans.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::data {

// When an end-of-turn token is trained: after every turn, after trained turns, after the last trained turn,
// never.
enum class EndRule { All, Turn, Last, None };

struct EndRules {
  EndRule eos = EndRule::Turn;  // for the tokenizer's EOS
  EndRule eot = EndRule::Turn;  // for other end-of-turn tokens
};

// Index of the first of `end_tokens` within `closing`, or -1.
int64_t find_end_token(const text::Encoding& encoded, const text::ByteSpan& closing,
                       const std::vector<int32_t>& end_tokens);

// Labels of `encoded`, for which turns[i] are trained where train[i]. A token that reaches over the border of
// a trained range is trained, as in Axolotl: behind "[/INST] " it holds the first word of the answer; one
// that reaches into masked bytes is not. `end_tokens` are the ids that may close a turn, of which `eos` (-1
// where there is none) follows rules.eos, and all others rules.eot; where `eos_is_eot`, either rule trains
// EOS.
std::vector<int32_t> label_chat(const text::Encoding& encoded, const std::vector<TurnSpans>& turns,
                                const std::vector<bool>& train, const EndRules& rules,
                                const std::vector<int32_t>& end_tokens, int32_t eos, bool eos_is_eot);

}  // namespace tessera::data
