#include "tessera/core/base64.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace tessera {
namespace {

constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j)
      bits = bits << 8 | (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j) text += j <= count ? kLetters[bits >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  static const std::array<int8_t, 256> values = [] {
    std::array<int8_t, 256> out;
    out.fill(-1);
    for (int8_t i = 0; i < 64; ++i) out[static_cast<unsigned char>(kLetters[i])] = i;
    return out;
  }();
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  if (text.size() % 4 == 1) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const int8_t value = values[static_cast<unsigned char>(text[i])];
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    // The second, third and fourth letter of four each end a byte.
    if (i % 4 > 0) bytes += static_cast<char>(bits >> (6 - 2 * (i % 4)));
  }
  return bytes;
}

}  // namespace tessera
