// How ranks are spread over axes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

namespace tessera {

// The ranks that are left for one more axis beside axes of `sizes` (each at least 1): `world_size` divided by
// their product. None where that is no whole number.
inline std::optional<int64_t> remaining_ranks(int64_t world_size, std::initializer_list<int64_t> sizes) {
  for (const int64_t size : sizes) {
    if (world_size % size != 0) return std::nullopt;
    world_size /= size;
  }
  return world_size;
}

}  // namespace tessera
