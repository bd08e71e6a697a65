// Token texts and ids, both ways.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera::text {

// Ids at and above this are refused: no model has so many, and tables are sized by the largest id.
inline constexpr int64_t kMaxTokenId = 1 << 22;

class Vocabulary {
 public:
  // False when the text or the id is taken already. The id must be in [0, kMaxTokenId).
  bool add(std::string text, int32_t id);

  std::optional<int32_t> find(std::string_view text) const;
  // Null for a hole and beyond the end.
  const std::string* text(int32_t id) const;
  // Number of tokens, holes not counted.
  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  // One more than the largest id.
  int64_t id_limit() const { return static_cast<int64_t>(texts_.size()); }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
  std::vector<const std::string*> texts_;  // keys of ids_, which do not move
};

}  // namespace tessera::text
