// The random numbers that are drawn into a tensor, and the numbers of its elements.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/core/rng.h"

namespace tessera::ops {

// One draw of random numbers. The element with number i takes word i % 4 of rng's words(i / 4) at this step.
struct Draw {
  enum class Kind {
    Dropout,  // 0 with probability p, else 1 / (1 - p)
    Noise,    // uniform between -1 and 1: (word + 0.5) 2^-31 - 1
  };
  Kind kind;
  CounterRng rng;
  uint64_t step;
  double p = 0.0;

  // Dropout drops an element whose word is below the threshold, which is below 2^32 as p < 1.
  uint32_t threshold() const { return static_cast<uint32_t>(p * 0x1.0p32); }
  // The value of a dropout mask's elements that are kept.
  double kept() const { return 1 / (1 - p); }
};

// The numbers of a tensor's elements, which lie in rows of `width` elements with successive numbers. Row r
// begins with (*of_rows)[r] if of_rows is not null, else with first + r * row_stride.
struct ElementNumbers {
  int64_t width, first = 0, row_stride = 0;
  const std::vector<int64_t>* of_rows = nullptr;

  // Returns the number of the row's first element.
  int64_t first_of(int64_t row) const {
    return of_rows != nullptr ? (*of_rows)[static_cast<size_t>(row)] : first + row * row_stride;
  }
};

}  // namespace tessera::ops
