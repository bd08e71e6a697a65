#include "tessera/text/tokenizer/vocabulary.h"

namespace tessera::text {

bool Vocabulary::add(std::string text, int32_t id) {
  if (this->text(id) != nullptr) return false;
  const auto [entry, inserted] = ids_.emplace(std::move(text), id);
  if (!inserted) return false;
  if (static_cast<size_t>(id) >= texts_.size()) texts_.resize(static_cast<size_t>(id) + 1, nullptr);
  texts_[static_cast<size_t>(id)] = &entry->first;
  return true;
}

std::optional<int32_t> Vocabulary::find(std::string_view text) const {
  const auto found = ids_.find(text);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string* Vocabulary::text(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < texts_.size() ? texts_[static_cast<size_t>(id)] : nullptr;
}

}  // namespace tessera::text
