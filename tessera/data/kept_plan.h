// What takes long to find out about rows, and is found out once.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tessera/data/packing.h"

namespace tessera::data {

// What `pack` makes of items of these lengths, for sequences of `capacity` tokens: from a file in `folder`
// where an earlier call has left it, else by calling it, and kept there. `way` tells ways to pack apart. A
// file that does not hold a plan of just these items is made again, and what cannot be kept is no error. An
// empty `folder` keeps nothing.
PackPlan kept_plan(const std::string& folder, const std::string& way, std::span<const int64_t> lengths,
                   int64_t capacity, const std::function<PackPlan()>& pack);

// The same of a mark for each of the rows with these hashes, by find().
std::vector<uint8_t> kept_marks(const std::string& folder, const std::string& way,
                                std::span<const uint64_t> rows,
                                const std::function<std::vector<uint8_t>()>& find);

}  // namespace tessera::data
