// The order of outputs in a layer that makes several equal parts: a contiguous piece of its outputs is a
// piece of every part.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/nn/linear.h"

namespace tessera::nn {

// Returns the largest divisor of `rows` up to 64 that leaves 16 turns or more: longer turns make longer
// copies, shorter ones finer cuts.
int64_t turn_of(int64_t rows);

// Maps the rows of a layer that holds `turn` rows of each of its `parts` in turns to those of files, which
// hold all `rows` of the first part, then those of the second, and so on. `turn` divides `rows`.
std::vector<StoredRows> rows_in_turns(int64_t rows, int64_t turn, int64_t parts);

}  // namespace tessera::nn
