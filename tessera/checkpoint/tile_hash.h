// The hash of a tile's bytes, written and read in pieces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/core/content_hash.h"

namespace tessera::checkpoint {

inline constexpr int64_t kTilePieceBytes = int64_t{16} << 20;

class TileHash {
 public:
  // Pieces of kTilePieceBytes, in order; the last one may be shorter.
  void add(const void* bytes, int64_t size) {
    hash_.add(std::string_view(static_cast<const char*>(bytes), static_cast<size_t>(size)));
  }
  std::string text() const { return hash_.text(); }

 private:
  ContentHash hash_;
};

}  // namespace tessera::checkpoint
