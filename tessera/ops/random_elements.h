// What is drawn into a tensor of random numbers, and which element is which.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/core/rng.h"

namespace tessera::ops {

// Element number i takes word i % 4 of rng's words(i / 4) at this step.
struct Draw {
  enum class Kind {
    Dropout,  // 0 with probability p, else 1 / (1 - p)
    Noise,    // uniform between -1 and 1: (word + 0.5) 2^-31 - 1
  };
  Kind kind;
  CounterRng rng;
  uint64_t step;
  double p = 0.0;

  // Dropout drops where a word is less. Below 2^32, as p < 1.
  uint32_t threshold() const { return static_cast<uint32_t>(p * 0x1.0p32); }
  double kept() const { return 1 / (1 - p); }
};

// The numbers of a tensor's elements: rows of `width` elements with successive ones. Row r begins with
// (*of_rows)[r] where that is not null, else with first + r * row_stride.
struct ElementNumbers {
  int64_t width, first = 0, row_stride = 0;
  const std::vector<int64_t>* of_rows = nullptr;

  int64_t first_of(int64_t row) const {
    return of_rows != nullptr ? (*of_rows)[static_cast<size_t>(row)] : first + row * row_stride;
  }
};

}  // namespace tessera::ops
