#include "tessera/core/terminal_text.h"

#include <cstdio>

#include <unistd.h>

#include "tessera/core/utf8.h"

namespace tessera {
namespace {

std::string escape(uint32_t code_point) {
  char text[16];
  std::snprintf(text, sizeof text, code_point < 0x80 ? "\\x%02x" : "\\u%04x", code_point);
  return text;
}

}  // namespace

bool acts_on_terminal(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
         (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

std::string terminal_text(std::string_view text, LineBreaks breaks) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    for (size_t i = 0; i < valid;) {
      const auto [code_point, size] = decode_char(text.data(), i);
      const bool is_break = code_point == '\n' || code_point == '\t';
      if (!acts_on_terminal(code_point) || (is_break && breaks == LineBreaks::Keep)) {
        out.append(text, i, size);
      } else {
        out += code_point == '\n' ? "\\n" : escape(code_point);
      }
      i += size;
    }
    text.remove_prefix(valid);
    if (text.empty()) break;
    char bad[8];
    std::snprintf(bad, sizeof bad, "\\x%02x", static_cast<unsigned char>(text.front()));
    out += bad;
    text.remove_prefix(1);
  }
  return out;
}

std::string text_for(int descriptor, std::string text) {
  return isatty(descriptor) != 0 ? terminal_text(text, LineBreaks::Keep) : text;
}

}  // namespace tessera
