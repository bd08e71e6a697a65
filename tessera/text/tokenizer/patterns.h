// Hand-written scanners for the pre-tokenisation patterns of the known model families.
#pragma once

#include <optional>
#include <string_view>

#include "tessera/text/tokenizer/function_ref.h"

namespace tessera::text {

enum class KnownPattern {
  Gpt2,    // the pattern of the ByteLevel pre-tokeniser: GPT-2, SmolLM, StarCoder
  Llama3,  // cl100k with numbers in groups of three: Llama 3, SmolLM3, OLMo 2
  Qwen2,   // as Llama3, but each digit alone: Qwen 2, 2.5, 3
};

// Returns the scanner for a regular expression, or nullopt when the expression is not a known one.
std::optional<KnownPattern> find_known_pattern(std::string_view regex);
// Returns the regular expression of a known pattern.
const char* known_pattern_regex(KnownPattern pattern);

// Receives the byte range [begin, end) of each match.
using RangeSink = FunctionRef<void(size_t begin, size_t end)>;

// Calls `sink` for every match in order. All three patterns match every character, so the matches tile the
// text. `text` must be valid UTF-8. Takes linear time.
void scan_pattern(KnownPattern pattern, std::string_view text, RangeSink sink);

}  // namespace tessera::text
