// The hash of a tile's bytes, computed in pieces as the tile is written or read.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "tessera/core/content_hash.h"

namespace tessera::checkpoint {

// Size of a piece: small enough to stay in the processor's cache while it is written and hashed.
inline constexpr int64_t kTilePieceBytes = int64_t{1} << 20;

// A hash with eight lanes: word i of eight bytes goes to lane i mod 8, and each lane is a chain of steps as
// in ContentHash. Eight chains at once keep up with memory, which one does not. Every step of a chain is a
// bijection, so a change within a word always changes the hash. The last block is filled up with zeros, and
// the number of bytes is hashed too.
class TileHash {
 public:
  // Adds the next piece. All pieces have a multiple of kTilePieceBytes bytes, except the last one.
  void add(const void* bytes, int64_t size) {
    const auto* const begin = static_cast<const char*>(bytes);
    const int64_t rest = size % kBlockBytes;
    num_bytes_ += size;
    add_blocks(begin, (size - rest) / kBlockBytes);
    if (rest == 0) return;
    char block[kBlockBytes] = {};
    std::memcpy(block, begin + size - rest, static_cast<size_t>(rest));
    add_blocks(block, 1);
  }
  std::string text() const {
    ContentHash all;
    for (const uint64_t lane : lanes_)
      all.add(std::string_view(reinterpret_cast<const char*>(&lane), sizeof lane));
    all.add(std::string_view(reinterpret_cast<const char*>(&num_bytes_), sizeof num_bytes_));
    return all.text();
  }

 private:
  static constexpr int64_t kLanes = 8, kBlockBytes = kLanes * 8;
  static_assert(kTilePieceBytes % kBlockBytes == 0);

  void add_blocks(const char* at, int64_t count) {
    std::array<uint64_t, kLanes> lanes = lanes_;  // a copy that the compiler keeps in registers
    for (; count > 0; --count, at += kBlockBytes) {
#pragma GCC unroll 8
      for (size_t lane = 0; lane < kLanes; ++lane) {
        uint64_t word = 0;
        std::memcpy(&word, at + 8 * lane, sizeof word);
        lanes[lane] = (lanes[lane] ^ word) * 0x9E3779B97F4A7C15U;
        lanes[lane] ^= lanes[lane] >> 32;
      }
    }
    lanes_ = lanes;
  }

  std::array<uint64_t, kLanes> lanes_ = {1, 2, 3, 4, 5, 6, 7, 8};
  int64_t num_bytes_ = 0;
};

}  // namespace tessera::checkpoint
