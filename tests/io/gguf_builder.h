// Builds GGUF files byte by byte, also invalid ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::testing {

template <typename T>
std::string raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

inline std::string gguf_string(const std::string& text) { return raw<uint64_t>(text.size()) + text; }

// Returns a metadata entry: key, type number, bytes of the value.
inline std::string gguf_entry(const std::string& key, uint32_t type, const std::string& value) {
  return gguf_string(key) + raw(type) + value;
}

// Returns a tensor's entry; the fastest dim comes first.
inline std::string gguf_tensor(const std::string& name, const std::vector<int64_t>& dims, uint32_t type,
                               uint64_t offset) {
  std::string bytes = gguf_string(name) + raw<uint32_t>(static_cast<uint32_t>(dims.size()));
  for (const int64_t dim : dims) bytes += raw(dim);
  return bytes + raw(type) + raw(offset);
}

struct GgufBytes {
  std::string magic = "GGUF";
  uint32_t version = 3;
  int64_t num_tensors = 0, num_keys = 0;
  std::string entries, tensors, data;
  size_t alignment = 32;

  GgufBytes& entry(const std::string& key, uint32_t type, const std::string& value) {
    entries += gguf_entry(key, type, value);
    ++num_keys;
    return *this;
  }
  GgufBytes& tensor(const std::string& name, const std::vector<int64_t>& dims, uint32_t type,
                    uint64_t offset) {
    tensors += gguf_tensor(name, dims, type, offset);
    ++num_tensors;
    return *this;
  }
  GgufBytes& with_data(size_t num_bytes) {
    for (size_t i = 0; i < num_bytes; ++i) data += static_cast<char>(i % 120);
    return *this;
  }
  std::string header() const {
    return magic + raw(version) + raw(num_tensors) + raw(num_keys) + entries + tensors;
  }
  std::string bytes() const {
    std::string result = header();
    if (!data.empty()) result.resize((result.size() + alignment - 1) / alignment * alignment);
    return result + data;
  }
};

}  // namespace tessera::testing
