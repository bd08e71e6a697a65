// Text of others on a terminal: files, models and names may hold characters that a terminal acts on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// Returns whether a character moves the cursor, begins an escape sequence or turns the direction of what is
// written: the control characters of ASCII, those from U+007F to U+009F, and the marks of bidirectional text.
bool acts_on_terminal(uint32_t code_point);

enum class LineBreaks { Escape, Keep };

// Writes such characters as "\x1b" and "\u202e", a line break as "\n", and a byte that is not UTF-8 as
// "\xff". With Keep, line breaks and tabs stay as they are.
std::string terminal_text(std::string_view text, LineBreaks breaks = LineBreaks::Escape);

// Returns terminal_text() with its line breaks if the descriptor is a terminal; else the text as it is, so
// that files and pipes get its bytes.
std::string text_for(int descriptor, std::string text);

}  // namespace tessera
