#include "tessera/nn/kv_cache.h"

#include <algorithm>
#include <set>

#include <ATen/ATen.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/device_event.h"
#include "tessera/core/error.h"
#include "tessera/ops/attention.h"

namespace tessera::nn {
KvCache::KvCache(const KvCacheOptions& options) : options_(options) {
  TESSERA_ASSERT(options.num_layers > 0 && options.num_kv_heads > 0 && options.head_dim > 0 &&
                     options.max_pages >= 0 && options.window >= 0,
                 "shape of the cache");
}

int64_t KvCache::add() {
  sequences_[next_];
  return next_++;
}

void KvCache::free(int64_t sequence) {
  shrink(find(sequence), 0);
  sequences_.erase(sequence);
}

int64_t KvCache::length(int64_t sequence) const { return find(sequence).length; }

void KvCache::truncate(int64_t sequence, int64_t length) {
  TESSERA_ASSERT(length >= 0, "length of a sequence");
  Sequence& found = find(sequence);
  if (length >= found.length) return;
  TESSERA_CHECK_ARGUMENT(first_seen_page(length) >= found.first_page,
                         "KvCache: the tokens that the next one would see have left the window");
  found.length = length;
  shrink(found, length);
}

int64_t KvCache::page_bytes() const {
  return ops::cache_page_elements(options_.num_layers, options_.num_kv_heads, options_.head_dim) *
         static_cast<int64_t>(c10::elementSize(options_.dtype));
}

KvCache::Sequence& KvCache::find(int64_t sequence) {
  const auto found = sequences_.find(sequence);
  TESSERA_ASSERT(found != sequences_.end(), "the cache has no such sequence");
  return found->second;
}

const KvCache::Sequence& KvCache::find(int64_t sequence) const {
  return const_cast<KvCache*>(this)->find(sequence);
}

int64_t KvCache::most_pages(int64_t prompt, int64_t tokens) const {
  const int64_t all = pages_for(tokens);
  // A window begins anywhere in a page, and the next token may need a new one.
  return options_.window == 0 ? all
                              : std::min(all, std::max(pages_for(prompt), pages_for(options_.window) + 1));
}

size_t KvCache::first_seen_page(int64_t length) const {
  if (options_.window == 0) return 0;
  return static_cast<size_t>(std::max<int64_t>(0, length + 1 - options_.window) / kPageTokens);
}

void KvCache::release_unseen(Sequence& sequence) noexcept {
  const size_t first = first_seen_page(sequence.length);
  if (first <= sequence.first_page) return;
  const auto end = sequence.pages.begin() + static_cast<std::ptrdiff_t>(first - sequence.first_page);
  free_.insert(free_.end(), sequence.pages.begin(), end);  // it has room for all pages
  sequence.pages.erase(sequence.pages.begin(), end);
  sequence.first_page = first;
}

// Leaves the sequence the pages of its first `tokens` tokens.
void KvCache::shrink(Sequence& sequence, int64_t tokens) noexcept {
  while (sequence.first_page + sequence.pages.size() > static_cast<size_t>(pages_for(tokens)) &&
         !sequence.pages.empty()) {
    free_.push_back(sequence.pages.back());  // it has room for all pages
    sequence.pages.pop_back();
  }
}

// Gives the sequence the pages that `tokens` tokens need. On an error it may have got some of them.
void KvCache::grow(Sequence& sequence, int64_t tokens) {
  const size_t wanted = static_cast<size_t>(pages_for(tokens));
  while (sequence.first_page + sequence.pages.size() < wanted) {
    if (free_.empty() && options_.max_pages > 0 && allocated_pages() >= options_.max_pages) {
      throw Error(ErrorKind::Memory, "KV-CACHE", "the cache of keys and values is full")
          .got(std::to_string(options_.max_pages * kPageTokens) + " tokens in all")
          .hint("generate fewer sequences at once, or allow a larger cache");
    }
    if (free_.empty()) add_pages();
    sequence.pages.push_back(free_.back());
    free_.pop_back();
  }
}

// One page; on a device with streams twice as many as there are, into which the present ones are copied.
void KvCache::add_pages() {
  constexpr size_t kFewest = 64;
  const size_t present = pages_.size();
  const bool has_rows = has_streams(options_.device);
  size_t pages = has_rows ? std::max(kFewest, 2 * present) : present + 1;
  if (options_.max_pages > 0) pages = std::min(pages, static_cast<size_t>(options_.max_pages));
  free_.reserve(pages);
  pages_.reserve(pages);
  const int64_t elements =
      ops::cache_page_elements(options_.num_layers, options_.num_kv_heads, options_.head_dim);
  const auto options = at::TensorOptions(options_.device).dtype(options_.dtype);
  if (has_rows) {
    const at::Tensor rows = at::empty({static_cast<int64_t>(pages) + 1, elements}, options);
    if (present > 0)
      rows.narrow(0, 0, static_cast<int64_t>(present))
          .copy_(rows_.narrow(0, 0, static_cast<int64_t>(present)));
    pages_ = rows.unbind();
    pages_.resize(pages);
    rows_ = rows;
  } else {
    pages_.push_back(at::empty({elements}, options));
  }
  for (size_t page = pages; page > present; --page) free_.push_back(page - 1);
}

CacheStep::CacheStep(KvCache& cache, const std::vector<int64_t>& sequences,
                     const std::vector<int64_t>& starts)
    : cache_(cache), sequences_(sequences), starts_(starts) {
  TESSERA_ASSERT(starts.size() == sequences.size() + 1 && starts.front() == 0, "starts of a cache step");
  TESSERA_ASSERT(std::set<int64_t>(sequences.begin(), sequences.end()).size() == sequences.size(),
                 "a sequence twice in one cache step");
  batch_.num_kv_heads = cache.options_.num_kv_heads;
  batch_.head_dim = cache.options_.head_dim;
  batch_.dtype = cache.options_.dtype;
  try {
    // First the pages of all: those that are added move the others.
    for (size_t i = 0; i < sequences.size(); ++i) {
      KvCache::Sequence& sequence = cache.find(sequences[i]);
      cache.grow(sequence, sequence.length + starts[i + 1] - starts[i]);
    }
    for (size_t i = 0; i < sequences.size(); ++i) add(sequences[i], starts[i], starts[i + 1]);
  } catch (...) {
    give_back();
    throw;
  }
}

CacheStep::~CacheStep() {
  if (!is_finished_) give_back();
}

void CacheStep::add(int64_t number, int64_t begin, int64_t end) {
  const KvCache::Sequence& sequence = cache_.find(number);
  ops::CachedSequence part;
  part.first = begin;
  part.added = end - begin;
  part.length = sequence.length + part.added;
  TESSERA_ASSERT(part.added > 0, "a sequence of a cache step has no new token");
  part.pages.resize(sequence.first_page);
  for (const size_t page : sequence.pages) part.pages.push_back(cache_.pages_[page]);
  for (int64_t token = 0; token < part.added; ++token) positions_.push_back(sequence.length + token);
  is_fresh_ = is_fresh_ && sequence.length == 0;
  batch_.sequences.push_back(std::move(part));
}

// Leaves every sequence the pages of its length.
void CacheStep::give_back() noexcept {
  for (const int64_t number : sequences_) {
    const auto found = cache_.sequences_.find(number);
    if (found == cache_.sequences_.end()) continue;
    KvCache::Sequence& sequence = found->second;
    cache_.shrink(sequence, sequence.length);
  }
}

at::Tensor CacheStep::attend(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const ops::AttentionFormula& formula) const {
  layer -= cache_.options_.first_layer;
  TESSERA_ASSERT(layer >= 0 && layer < cache_.options_.num_layers, "layer of the cache");
  ops::write_cache(batch_, layer, k, v);
  // Prompts see nothing but themselves, which the kernel for whole documents does faster.
  if (is_fresh_) return ops::document_attention(q, k, v, starts_, formula);
  return ops::cached_attention(q, batch_, layer, formula);
}

void CacheStep::finish() {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    KvCache::Sequence& sequence = cache_.find(sequences_[i]);
    sequence.length = batch_.sequences[i].length;
    cache_.release_unseen(sequence);
  }
  is_finished_ = true;
}

}  // namespace tessera::nn
