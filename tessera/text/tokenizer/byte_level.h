// The byte-level alphabet: one printable character stands for each byte in the vocabulary's spelling.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::text {

// Returns the character for a byte: itself for printable Latin-1, else one from U+0100 on.
uint32_t byte_to_char(uint8_t byte);
// Returns the byte for a character, or -1.
int char_to_byte(uint32_t code_point);

// Returns the spelling of raw bytes in the vocabulary ("Ġthe" for " the").
std::string bytes_to_spelling(std::string_view bytes);
// Returns the bytes of a token's spelling, which must be valid UTF-8. A spelling with any character outside
// the alphabet stands for itself, since added tokens are written as plain text.
std::string spelling_to_bytes(std::string_view spelling);

}  // namespace tessera::text
