// Reads the contents of trackers' files, byte by byte.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace tessera::train {

template <class T>
T take(std::string& bytes) {
  T value{};
  if (bytes.size() < sizeof value) throw std::runtime_error("the bytes end early");
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.erase(0, sizeof value);
  return value;
}

inline uint64_t take_varint(std::string& bytes) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = take<uint8_t>(bytes);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

inline std::string take_bytes(std::string& bytes, uint64_t size) {
  if (bytes.size() < size) throw std::runtime_error("the bytes end early");
  std::string part = bytes.substr(0, size);
  bytes.erase(0, size);
  return part;
}

// Returns the fields of a message of integers, strings and messages, by number; integers are in decimal.
inline std::multimap<int, std::string> fields_of(std::string message) {
  std::multimap<int, std::string> fields;
  while (!message.empty()) {
    const uint64_t key = take_varint(message);
    if (key % 8 == 0) {
      fields.emplace(key / 8, std::to_string(take_varint(message)));
    } else if (key % 8 == 2) {
      fields.emplace(key / 8, take_bytes(message, take_varint(message)));
    } else {
      throw std::runtime_error("unknown type of field");
    }
  }
  return fields;
}

}  // namespace tessera::train
