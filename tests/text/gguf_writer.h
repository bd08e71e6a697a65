// Makes GGUF files that hold only metadata.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tessera/io/gguf.h"

namespace tessera::text {

// Writes GGUF metadata, and no tensors.
class GgufWriter {
 public:
  void add(const std::string& key, const std::string& value) {
    head(key, 8);
    text(value);
  }
  void add(const std::string& key, uint32_t value) {
    head(key, 4);
    number(value);
  }
  void add(const std::string& key, bool value) {
    head(key, 7);
    body_ += static_cast<char>(value);
  }
  void add(const std::string& key, const std::vector<std::string>& values) {
    head(key, 9);
    number(uint32_t{8});
    number(uint64_t{values.size()});
    for (const auto& value : values) text(value);
  }
  void add(const std::string& key, const std::vector<int32_t>& values) {
    head(key, 9);
    number(uint32_t{5});
    number(uint64_t{values.size()});
    for (const int32_t value : values) number(value);
  }
  void add(const std::string& key, const std::vector<float>& values) {
    head(key, 9);
    number(uint32_t{6});
    number(uint64_t{values.size()});
    for (const float value : values) number(value);
  }
  io::GgufFile open(const std::filesystem::path& path) const {
    std::string file = "GGUF";
    const auto put = [&](auto value) { file.append(reinterpret_cast<const char*>(&value), sizeof value); };
    put(uint32_t{3});
    put(uint64_t{0});
    put(count_);
    file += body_;
    file.resize((file.size() + 31) / 32 * 32);
    std::ofstream(path, std::ios::binary) << file;
    return io::GgufFile::open(path.string());
  }

 private:
  template <class T>
  void number(T value) {
    body_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(const std::string& value) {
    number(uint64_t{value.size()});
    body_ += value;
  }
  void head(const std::string& key, uint32_t type) {
    text(key);
    number(type);
    ++count_;
  }

  std::string body_;
  uint64_t count_ = 0;
};

}  // namespace tessera::text
