// A 64-bit hash that tells different contents apart. It does not resist adversaries.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

// FNV-1a over words of eight bytes with a shift, so that high bits reach low ones. Each add() counts its
// length too: {"a", "bc"} differs from {"ab", "c"}.
class ContentHash {
 public:
  void add(std::string_view bytes) {
    mix(bytes.size());
    for (; bytes.size() >= sizeof(uint64_t); bytes.remove_prefix(sizeof(uint64_t))) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data(), sizeof word);
      mix(word);
    }
    uint64_t rest = 0;
    if (!bytes.empty()) std::memcpy(&rest, bytes.data(), bytes.size());
    mix(rest);
  }
  template <class T>
  void add(std::span<const T> values) {
    add(std::string_view(reinterpret_cast<const char*>(values.data()), values.size_bytes()));
  }
  uint64_t value() const { return value_; }
  // The value as 16 hexadecimal digits.
  std::string text() const {
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(value_));
    return digits;
  }

 private:
  void mix(uint64_t word) {
    value_ = (value_ ^ word) * 0x9E3779B97F4A7C15U;
    value_ ^= value_ >> 32;
  }
  uint64_t value_ = 0xcbf29ce484222325U;
};

}  // namespace tessera
