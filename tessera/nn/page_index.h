// Names of a cache's pages, by which sequences find pages that others have filled.
#pragma once

#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::nn {

// Stands for the tokens of a page and of all pages before it, as a checksum of them does: pages with one key
// hold the same keys and values.
using PageKey = std::string;

// Knows which page has which key, and in which order the pages with a key were left by their sequences. Pages
// are numbers below that of the last grow().
class PageIndex {
 public:
  // Makes room for the pages [0, count); new ones have no key.
  void grow(size_t count) { pages_.resize(count); }

  std::optional<size_t> find(const PageKey& key) const;
  // Gives a page without a key this one, unless another page has it.
  void set_key(size_t page, const PageKey& key);
  bool has_key(size_t page) const { return !pages_[page].key.empty(); }

  // A page with a key is idle while it belongs to no sequence.
  void add_idle(size_t page) noexcept;
  void remove_idle(size_t page) noexcept;
  size_t num_idle() const { return num_idle_; }
  // Returns the page that has been idle longest, of which there must be one. It is not idle any more and has
  // no key.
  size_t take_oldest();

 private:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();
  // The idle pages are a list in this vector, so that leaving a page needs no memory.
  struct Page {
    PageKey key;
    size_t older = kNone, newer = kNone;
  };

  std::vector<Page> pages_;
  std::map<PageKey, size_t> by_key_;
  size_t oldest_ = kNone, newest_ = kNone, num_idle_ = 0;
};

}  // namespace tessera::nn
