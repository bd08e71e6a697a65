// Maps token texts to ids and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera::text {

// Ids must be below this: no model has so many, and tables are sized by the largest id.
inline constexpr int64_t kMaxTokenId = 1 << 22;

class Vocabulary {
 public:
  // Adds a token. Returns false when the text or the id is taken already. The id must be in [0, kMaxTokenId).
  bool add(std::string text, int32_t id);

  std::optional<int32_t> find(std::string_view text) const;
  // Returns the text of an id; null for an unused id and beyond the end.
  const std::string* text(int32_t id) const;
  // Returns the number of tokens; unused ids do not count.
  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  // Returns one more than the largest id.
  int64_t id_limit() const { return static_cast<int64_t>(texts_.size()); }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
  std::vector<const std::string*> texts_;  // point to keys of ids_, which do not move
};

}  // namespace tessera::text
