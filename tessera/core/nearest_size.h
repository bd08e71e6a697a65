// Finds the sizes that an error about a size proposes instead.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera {

// Gives the numbers nearest to `size`, itself left out, for which works() is true: the nearest one below it
// and the nearest one above, from 1 to `most`, as far as there are any, in ascending order.
std::vector<int64_t> nearest_sizes(int64_t size, int64_t most,
                                   const std::function<bool(int64_t size)>& works);

// Writes nearest_sizes() of a recipe's key as a hint: "KEY: 2", or "the nearest that work are 2 and 4"; empty
// for none.
std::string nearest_size_hint(const std::string& key, const std::vector<int64_t>& sizes);

}  // namespace tessera
