// Writes the wire format of Protocol Buffers, as far as trackers' files need it: a second protobuf library
// beside LibTorch's is not worth a few fields.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

namespace tessera::train::protobuf {

// Appends a value in the machine's byte order: little-endian, on all machines that LibTorch serves here.
template <class T>
void put_raw(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

inline void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

inline void put_key(std::string& out, int field, int wire_type) {
  put_varint(out, static_cast<uint64_t>(field << 3 | wire_type));
}

inline void put_int(std::string& out, int field, int64_t value) {
  put_key(out, field, 0);
  put_varint(out, static_cast<uint64_t>(value));
}

// Appends a field of fixed size: double or float.
template <class T>
void put_number(std::string& out, int field, T value) {
  put_key(out, field, sizeof(T) == 8 ? 1 : 5);
  put_raw(out, value);
}

// Appends a field that is a string or a message.
inline void put_bytes(std::string& out, int field, const std::string& bytes) {
  put_key(out, field, 2);
  put_varint(out, bytes.size());
  out += bytes;
}

}  // namespace tessera::train::protobuf
