// Maps the elements of a tile to their places in the whole tensor.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/ops/random_elements.h"
#include "tessera/parallel/layout.h"

namespace tessera::optim {

// Consecutive elements of a flat tile, with their numbers: their places in the whole tensor, row-major.
struct NumberedPart {
  int64_t begin = 0, size = 0;
  ops::ElementNumbers numbers = {};  // of_rows stays null
};

class TileNumbers {
 public:
  // Numbers the elements of the tile `box` of a tensor of shape `shape`.
  TileNumbers(const std::vector<int64_t>& shape, const parallel::Box& box);

  // Returns the elements [begin, begin + size) of the flat tile in as few consecutive parts as possible.
  std::vector<NumberedPart> parts(int64_t begin, int64_t size) const;

 private:
  std::vector<NumberedPart> all_;  // these cover the tile, each with whole rows
};

}  // namespace tessera::optim
