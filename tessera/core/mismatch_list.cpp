#include "tessera/core/mismatch_list.h"

#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"

namespace tessera {

void MismatchList::add(const std::string& kind, std::string name) {
  for (auto& [known, names] : names_) {
    if (known == kind) return names.push_back(std::move(name));
  }
  TESSERA_ASSERT(false, "a kind of mismatch that the list does not have");
}

bool MismatchList::empty() const {
  return std::all_of(names_.begin(), names_.end(), [](const auto& kind) { return kind.second.empty(); });
}

std::string MismatchList::text() const {
  size_t budget = 20;
  std::vector<std::string> parts;
  for (const auto& [kind, names] : names_) {
    if (names.empty()) continue;
    const size_t count = std::min(budget, names.size());
    budget -= count;
    std::string part = std::to_string(names.size()) + " " + kind;
    if (count > 0) {
      part += ": " + join({names.begin(), names.begin() + static_cast<ptrdiff_t>(count)}, ", ");
      if (count < names.size()) part += ", ...";
    }
    parts.push_back(std::move(part));
  }
  return join(parts, "; ");
}

}  // namespace tessera
