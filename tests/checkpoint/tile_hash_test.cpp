// Tests that a change of any byte changes the hash, and that the pieces in which bytes come do not.
#include "tessera/checkpoint/tile_hash.h"

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace tessera::checkpoint {
namespace {

std::string hash_of(const std::vector<char>& bytes) {
  TileHash hash;
  const auto size = static_cast<int64_t>(bytes.size());
  for (int64_t begin = 0; begin < size; begin += kTilePieceBytes)
    hash.add(bytes.data() + begin, std::min(kTilePieceBytes, size - begin));
  return hash.text();
}

std::vector<char> random_bytes(size_t size, std::mt19937_64& random) {
  std::vector<char> bytes(size);
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

TEST(TileHash, EveryBitAndEveryLengthCounts) {
  std::mt19937_64 random(3);
  std::vector<char> bytes = random_bytes(300, random);
  std::set<std::string> seen = {hash_of(bytes)};
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    EXPECT_TRUE(seen.insert(hash_of(bytes)).second) << "bit " << bit;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  }
  // Runs of zeros of different lengths differ too.
  for (size_t size = 0; size <= 200; ++size)
    EXPECT_TRUE(seen.insert(hash_of(std::vector<char>(size, 0))).second) << size;
}

TEST(TileHash, PlacesCount) {
  std::mt19937_64 random(4);
  std::vector<char> bytes = random_bytes(kTilePieceBytes + 200, random);
  const std::string whole = hash_of(bytes);
  const auto swapped = [&](size_t a, size_t b, size_t size) {
    std::vector<char> other = bytes;
    std::swap_ranges(other.begin() + static_cast<ptrdiff_t>(a),
                     other.begin() + static_cast<ptrdiff_t>(a + size),
                     other.begin() + static_cast<ptrdiff_t>(b));
    return hash_of(other);
  };
  EXPECT_NE(swapped(0, 8, 8), whole);      // swaps words of two lanes
  EXPECT_NE(swapped(0, 64, 8), whole);     // swaps words of one lane
  EXPECT_NE(swapped(0, 4096, 64), whole);  // swaps words of all lanes
  EXPECT_NE(swapped(0, kTilePieceBytes, 128), whole);
}

}  // namespace
}  // namespace tessera::checkpoint
