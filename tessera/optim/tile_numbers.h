// Which element of a whole tensor is which of a tile.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/ops/random_elements.h"
#include "tessera/parallel/layout.h"

namespace tessera::optim {

// Consecutive elements of a tile, and their numbers: their places in the whole tensor, row-major.
struct NumberedPart {
  int64_t begin = 0, size = 0;
  ops::ElementNumbers numbers = {};  // without of_rows
};

class TileNumbers {
 public:
  // Of the tile `box` of a tensor of shape `shape`.
  TileNumbers(const std::vector<int64_t>& shape, const parallel::Box& box);

  // The elements [begin, begin + size) of the flat tile in parts, one behind the other, as few as can be.
  std::vector<NumberedPart> parts(int64_t begin, int64_t size) const;

 private:
  std::vector<NumberedPart> all_;  // of the tile, whole rows each
};

}  // namespace tessera::optim
