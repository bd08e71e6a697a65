#include "tessera/core/html_text.h"

#include "tessera/core/terminal_text.h"
#include "tessera/core/utf8.h"

namespace tessera {

std::string html_text(std::string_view text) {
  const std::string valid = repair_utf8(text);
  std::string html;
  html.reserve(valid.size());
  for (size_t i = 0; i < valid.size();) {
    const auto [c, size] = decode_char(valid.data(), i);
    if (c == '&') {
      html += "&amp;";
    } else if (c == '<') {
      html += "&lt;";
    } else if (c == '>') {
      html += "&gt;";
    } else if (c == '"') {
      html += "&quot;";
    } else if (c == '\'') {
      html += "&#39;";
    } else if (acts_on_terminal(c) && c != '\t' && c != '\n') {
      html += "\uFFFD";
    } else {
      html.append(valid, i, size);
    }
    i += size;
  }
  return html;
}

}  // namespace tessera
