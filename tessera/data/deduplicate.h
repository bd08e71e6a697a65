// Finds rows that repeat an earlier row.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/data/row_store.h"

namespace tessera::data {

// Returns for each row of the store whether an earlier one has the same tokens and labels.
std::vector<bool> find_duplicates(const RowStore& store);

// Marks further rows in `is_left_out`: those that are nearly the same as an earlier row that is not left out.
// Two rows are nearly the same if their sets of five consecutive tokens have at least `similarity` (above 0,
// at most 1) of their union in common. Candidates come from MinHash signatures: of the pairs at `similarity`
// about 5 % are missed, of those well above it hardly any, and no pair below it is taken. Rows of less than
// five tokens are not compared. Takes about 150 bytes of memory for each row. The outcome does not depend on
// the number of threads.
void find_near_duplicates(const RowStore& store, double similarity, int64_t num_threads,
                          std::vector<bool>& is_left_out);

}  // namespace tessera::data
