#include "tessera/core/html_text.h"

namespace tessera {

std::string html_text(std::string_view text) {
  std::string html;
  html.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0xFFU;
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
    } else if ((byte < 0x20 && c != '\t' && c != '\n') || byte == 0x7F) {
      html += "\uFFFD";
    } else if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {  // U+0080 to U+009F
      html += "\uFFFD";
      ++i;
    } else {
      html += c;
    }
  }
  return html;
}

}  // namespace tessera
