#include "tessera/nn/page_index.h"

#include "tessera/core/error.h"

namespace tessera::nn {

std::optional<size_t> PageIndex::find(const PageKey& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? std::nullopt : std::optional(found->second);
}

void PageIndex::set_key(size_t page, const PageKey& key) {
  TESSERA_ASSERT(!key.empty() && !has_key(page), "a page gets a key once");
  if (by_key_.try_emplace(key, page).second) pages_[page].key = key;
}

void PageIndex::add_idle(size_t page) noexcept {
  pages_[page].older = newest_;
  pages_[page].newer = kNone;
  (newest_ == kNone ? oldest_ : pages_[newest_].newer) = page;
  newest_ = page;
  ++num_idle_;
}

void PageIndex::remove_idle(size_t page) noexcept {
  const Page& gone = pages_[page];
  (gone.older == kNone ? oldest_ : pages_[gone.older].newer) = gone.newer;
  (gone.newer == kNone ? newest_ : pages_[gone.newer].older) = gone.older;
  --num_idle_;
}

size_t PageIndex::take_oldest() {
  TESSERA_ASSERT(num_idle_ > 0, "no page is idle");
  const size_t page = oldest_;
  remove_idle(page);
  by_key_.erase(pages_[page].key);
  pages_[page].key.clear();
  return page;
}

}  // namespace tessera::nn
