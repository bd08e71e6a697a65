#include "tessera/core/nearest_size.h"

#include <algorithm>

namespace tessera {

std::vector<int64_t> nearest_sizes(int64_t size, int64_t most, const std::function<bool(int64_t)>& works) {
  std::vector<int64_t> found;
  int64_t below = std::min(size - 1, most);
  while (below >= 1 && !works(below)) --below;
  if (below >= 1) found.push_back(below);
  int64_t above = std::max<int64_t>(size + 1, 1);
  while (above <= most && !works(above)) ++above;
  if (above <= most) found.push_back(above);
  return found;
}

std::string nearest_size_hint(const std::string& key, const std::vector<int64_t>& sizes) {
  if (sizes.empty()) return "";
  if (sizes.size() == 1) return key + ": " + std::to_string(sizes[0]);
  return "the nearest valid sizes are " + std::to_string(sizes[0]) + " and " + std::to_string(sizes[1]);
}

}  // namespace tessera
