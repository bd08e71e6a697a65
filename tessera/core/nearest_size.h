// What an error about a size proposes instead.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera {

// The nearest numbers to `size`, itself left out, that `works` takes: one below it and one above, of those
// from 1 to `most` that there are, in order.
std::vector<int64_t> nearest_sizes(int64_t size, int64_t most,
                                   const std::function<bool(int64_t size)>& works);

// nearest_sizes() of a recipe's key as a hint: "KEY: 2", or "the nearest that work are 2 and 4"; empty for
// none.
std::string nearest_size_hint(const std::string& key, const std::vector<int64_t>& sizes);

}  // namespace tessera
