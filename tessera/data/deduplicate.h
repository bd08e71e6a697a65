// Rows that say what an earlier row says.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/data/row_store.h"

namespace tessera::data {

// For each row of the store whether an earlier one has the same tokens and labels.
std::vector<bool> find_duplicates(const RowStore& store);

// Marks in `is_left_out` further rows of which an earlier row, that is not left out, is nearly the same:
// their sets of five tokens that follow each other have at least `similarity` (above 0, at most 1) of their
// union in common. Candidates come from MinHash signatures, so pairs close to `similarity` may be missed, and
// no pair below it is taken. Rows of less than five tokens are not compared. Takes about 150 bytes a row. The
// outcome does not depend on the number of threads.
void find_near_duplicates(const RowStore& store, double similarity, int64_t num_threads,
                          std::vector<bool>& is_left_out);

}  // namespace tessera::data
