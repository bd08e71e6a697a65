// The tokens "<0x00>" to "<0xFF>", which stand for the bytes of text that has no other token.
#pragma once

#include <array>
#include <cstdint>

#include "tessera/text/tokenizer/vocabulary.h"

namespace tessera::text {

// Returns the id of each byte's token, or -1.
std::array<int32_t, 256> byte_token_ids(const Vocabulary& vocabulary);

}  // namespace tessera::text
