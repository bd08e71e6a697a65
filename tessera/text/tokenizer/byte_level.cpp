#include "tessera/text/tokenizer/byte_level.h"

#include <array>

#include "tessera/core/utf8.h"

namespace tessera::text {
namespace {

struct Alphabet {
  std::array<uint32_t, 256> chars{};
  std::array<int16_t, 512> bytes{};

  Alphabet() {
    bytes.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
      chars[b] = printable ? b : next++;
      bytes[chars[b]] = static_cast<int16_t>(b);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

uint32_t byte_to_char(uint8_t byte) { return alphabet().chars[byte]; }

int char_to_byte(uint32_t code_point) { return code_point < 512 ? alphabet().bytes[code_point] : -1; }

std::string bytes_to_spelling(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_utf8(out, byte_to_char(static_cast<uint8_t>(byte)));
  return out;
}

std::string spelling_to_bytes(std::string_view spelling) {
  std::string out;
  out.reserve(spelling.size());
  for (size_t i = 0; i < spelling.size();) {
    const DecodedChar c = decode_char(spelling.data(), i);
    const int byte = char_to_byte(c.code_point);
    if (byte < 0) return std::string(spelling);
    out += static_cast<char>(byte);
    i += c.size;
  }
  return out;
}

}  // namespace tessera::text
