// Keeps on disk what takes long to find out about rows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tessera/data/packing.h"

namespace tessera::data {

// Returns what `pack` makes of items of these lengths, for sequences of `capacity` tokens. The plan is taken
// from a file in `folder` if an earlier call has left it there; else `pack` is called, and the plan is kept.
// `way` tells ways of packing apart. A file that does not hold a plan of exactly these items is made again,
// and a plan that cannot be kept is no error. An empty `folder` keeps nothing.
PackPlan kept_plan(const std::string& folder, const std::string& way, std::span<const int64_t> lengths,
                   int64_t capacity, const std::function<PackPlan()>& pack);

// Returns a mark for each of the rows with these hashes, by find(), and keeps the marks as kept_plan() keeps
// a plan.
std::vector<uint8_t> kept_marks(const std::string& folder, const std::string& way,
                                std::span<const uint64_t> rows,
                                const std::function<std::vector<uint8_t>()>& find);

}  // namespace tessera::data
