// Words that an answer is not to hold, as tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::text {

// Returns the tokens of a word as it stands at the beginning of a text, and behind a space where that is as
// many other tokens; white space before the word does not count. Empty if there is nothing else.
std::vector<std::vector<int64_t>> tokens_of_bad_word(const Tokenizer& tokenizer, const std::string& text);

}  // namespace tessera::text
