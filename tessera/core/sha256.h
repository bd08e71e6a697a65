// The SHA-256 checksum (FIPS 180-4), by which the hub names and checks large files.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

class Sha256 {
 public:
  void add(std::string_view bytes);
  // Gives the checksum of all that was added, as 64 hexadecimal digits. Nothing may be added behind it.
  std::string hex();

 private:
  void mix(const char* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<char, 64> rest_ = {};  // bytes that do not fill a block yet
  uint64_t num_bytes_ = 0;
};

}  // namespace tessera
