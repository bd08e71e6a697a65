#include "tessera/core/html_text.h"

namespace tessera {

std::string html_text(std::string_view text) {
  std::string html;
  html.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&': html += "&amp;"; break;
      case '<': html += "&lt;"; break;
      case '>': html += "&gt;"; break;
      case '"': html += "&quot;"; break;
      case '\'': html += "&#39;"; break;
      default: {
        const auto byte = static_cast<unsigned char>(c);
        const bool is_control = (byte < 0x20 && c != '\t' && c != '\n') || byte == 0x7F;
        is_control ? html += "\xEF\xBF\xBD" : html += c;
      }
    }
  }
  return html;
}

}  // namespace tessera
