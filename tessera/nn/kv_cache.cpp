#include "tessera/nn/kv_cache.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>

#include <ATen/ATen.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/error.h"
#include "tessera/device/device_event.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/cache_pages.h"

namespace tessera::nn {

CachedHeads KvCacheOptions::heads_of(int64_t layer) const {
  return heads.empty() ? CachedHeads{num_kv_heads, head_dim} : heads.at(static_cast<size_t>(layer));
}

int64_t KvCacheOptions::elements_before(int64_t layers) const {
  const auto count = dtype == ops::kCodedCache ? ops::coded_page_bytes : ops::cache_page_elements;
  if (heads.empty()) return count(layers, num_kv_heads, head_dim);
  int64_t elements = 0;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const CachedHeads own = heads_of(layer);
    elements += count(1, own.num_kv_heads, own.head_dim);
  }
  return elements;
}

KvCache::KvCache(const KvCacheOptions& options) : options_(options) {
  TESSERA_ASSERT(options.num_layers > 0 && options.num_kv_heads > 0 && options.head_dim > 0 &&
                     options.max_pages >= 0 && options.window >= 0 &&
                     (options.heads.empty() || std::ssize(options.heads) == options.num_layers),
                 "shape of the cache");
  TESSERA_ASSERT(options.dtype != ops::kCodedCache || !has_streams(options.device), "a cache in 8 bits");
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

bool KvCache::can_truncate(int64_t sequence, int64_t length) const {
  const Sequence& found = find(sequence);
  return length >= found.length || (found.states.empty() && first_seen_page(length) >= found.first_page);
}

void KvCache::truncate(int64_t sequence, int64_t length) {
  TESSERA_ASSERT(length >= 0, "length of a sequence");
  Sequence& found = find(sequence);
  if (length >= found.length) return;
  TESSERA_CHECK_ARGUMENT(can_truncate(sequence, length),
                         "KvCache: the cache does not have what the next token would see");
  found.length = length;
  shrink(found, length);
  TESSERA_ASSERT(length % kPageTokens == 0 || !index_.has_key(found.pages.back()),
                 "nobody writes into a page that others may share");
}

int64_t KvCache::page_bytes() const {
  return options_.elements_before(options_.num_layers) *
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
  // A window may begin anywhere in a page, and the next token may need a new one.
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
  for (auto page = sequence.pages.begin(); page != end; ++page) release(*page);
  sequence.pages.erase(sequence.pages.begin(), end);
  sequence.first_page = first;
}

size_t KvCache::take_page() {
  const size_t page = free_.back();
  free_.pop_back();
  num_owners_[page] = 1;
  return page;
}

void KvCache::release(size_t page) noexcept {
  if (--num_owners_[page] > 0) return;
  if (index_.has_key(page)) {
    index_.add_idle(page);
  } else {
    free_.push_back(page);  // it has room for all pages
  }
}

// Returns to the pool the pages beyond those of the sequence's first `tokens` tokens, the last one first: of
// idle pages the end of a text goes before its beginning.
void KvCache::shrink(Sequence& sequence, int64_t tokens) noexcept {
  while (sequence.first_page + sequence.pages.size() > static_cast<size_t>(pages_for(tokens)) &&
         !sequence.pages.empty()) {
    release(sequence.pages.back());
    sequence.pages.pop_back();
  }
}

size_t KvCache::missing_pages(const Sequence& sequence, int64_t tokens) const {
  const size_t wanted = static_cast<size_t>(pages_for(tokens)),
               present = sequence.first_page + sequence.pages.size();
  return wanted - std::min(wanted, present);
}

// Frees pages until there are at least `missing`: allocates more, and at the limit takes idle ones. Throws
// Error(Memory, "KV-CACHE") if those do not suffice.
void KvCache::make_room(size_t missing) {
  if (missing <= free_.size()) return;
  const auto most =
      options_.max_pages > 0 ? static_cast<size_t>(options_.max_pages) : std::numeric_limits<size_t>::max();
  const size_t added = std::min(missing - free_.size(), most - num_pages_);
  if (free_.size() + added + index_.num_idle() < missing) {
    throw Error(ErrorKind::Memory, "KV-CACHE", "the KV cache is full")
        .got(std::to_string(options_.max_pages * kPageTokens) + " tokens in all")
        .hint("generate fewer sequences at once, or allow a larger cache");
  }
  if (added > 0) allocate(num_pages_ + added, most);
  while (free_.size() < missing) free_.push_back(index_.take_oldest());
}

// Allocates pages until there are at least `least` in all, or up to `most`.
void KvCache::allocate(size_t least, size_t most) {
  if (has_streams(options_.device)) {
    constexpr size_t kFewest = 64;
    const size_t pages = std::min(most, std::max({least, kFewest, num_pages_ + num_pages_ / 4}));
    free_.reserve(pages);
    num_owners_.resize(pages);
    index_.grow(pages);
    move_rows(pages);
    for (size_t page = pages; page > num_pages_; --page) free_.push_back(page - 1);
    num_pages_ = pages;
    return;
  }
  const int64_t elements = options_.elements_before(options_.num_layers);
  free_.reserve(least);
  num_owners_.resize(least);
  index_.grow(least);
  while (num_pages_ < least) {
    pages_.push_back(at::empty({elements}, at::TensorOptions(options_.device).dtype(options_.dtype)));
    free_.push_back(num_pages_++);
  }
}

// Replaces each layer's tensor by one with room for `pages` pages. If memory runs out at some layer, the
// layers before it keep their larger tensors, and a later attempt goes on from there.
void KvCache::move_rows(size_t pages) {
  const auto present = static_cast<int64_t>(num_pages_), rows = static_cast<int64_t>(pages) + 1;
  layer_rows_.resize(static_cast<size_t>(options_.num_layers));
  for (int64_t layer = 0; layer < options_.num_layers; ++layer) {
    at::Tensor& own = layer_rows_[static_cast<size_t>(layer)];
    if (own.defined() && own.size(0) >= rows) continue;
    const int64_t elements = options_.elements_before(layer + 1) - options_.elements_before(layer);
    const at::Tensor larger =
        at::empty({rows, elements}, at::TensorOptions(options_.device).dtype(options_.dtype));
    if (own.defined()) larger.narrow(0, 0, present).copy_(own.narrow(0, 0, present));
    own = larger;
    ++num_moves_;
  }
}

int64_t KvCache::count_known(std::span<const PageKey> keys) const {
  return std::ranges::find_if(keys, [this](const PageKey& key) { return !index_.find(key); }) - keys.begin();
}

int64_t KvCache::count_idle(std::span<const PageKey> keys) const {
  return std::ranges::count_if(keys,
                               [this](const PageKey& key) { return num_owners_[*index_.find(key)] == 0; });
}

void KvCache::share(int64_t sequence, std::span<const PageKey> keys) {
  Sequence& found = find(sequence);
  TESSERA_ASSERT(found.length == 0 && options_.window == 0 && count_known(keys) == std::ssize(keys),
                 "a sequence that shares pages");
  found.pages.reserve(keys.size());
  for (const PageKey& key : keys) {
    const size_t page = *index_.find(key);
    if (num_owners_[page]++ == 0) index_.remove_idle(page);
    found.pages.push_back(page);
  }
  found.length = std::ssize(keys) * kPageTokens;
}

void KvCache::set_key(int64_t sequence, int64_t number, const PageKey& key) {
  const Sequence& found = find(sequence);
  TESSERA_ASSERT((number + 1) * kPageTokens <= found.length && options_.window == 0 && found.states.empty(),
                 "a page that others may share");
  index_.set_key(found.pages[static_cast<size_t>(number)], key);
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
    size_t missing = 0;
    for (size_t i = 0; i < sequences.size(); ++i) {
      const KvCache::Sequence& sequence = cache.find(sequences[i]);
      missing += cache.missing_pages(sequence, sequence.length + starts[i + 1] - starts[i]);
    }
    cache.make_room(missing);
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
  KvCache::Sequence& sequence = cache_.find(number);
  ops::CachedSequence part;
  part.first = begin;
  part.added = end - begin;
  part.length = sequence.length + part.added;
  TESSERA_ASSERT(part.added > 0, "a sequence of a cache step has no new token");
  for (size_t missing = cache_.missing_pages(sequence, part.length); missing > 0; --missing)
    sequence.pages.push_back(cache_.take_page());
  if (cache_.layer_rows_.empty()) {
    part.pages.resize(sequence.first_page);
    for (const size_t page : sequence.pages) part.pages.push_back(cache_.pages_[page]);
  }
  for (int64_t token = 0; token < part.added; ++token) positions_.push_back(sequence.length + token);
  is_fresh_ = is_fresh_ && sequence.length == 0;
  batch_.sequences.push_back(std::move(part));
}

// Returns to the pool the pages that this step took.
void CacheStep::give_back() noexcept {
  for (const int64_t number : sequences_) {
    const auto found = cache_.sequences_.find(number);
    if (found == cache_.sequences_.end()) continue;
    KvCache::Sequence& sequence = found->second;
    cache_.shrink(sequence, sequence.length);
  }
}

std::vector<LayerState> CacheView::states(int64_t) const {
  TESSERA_ASSERT(false, "this pass has no states of layers");
}

void CacheView::set_states(int64_t, std::vector<LayerState>) const {
  TESSERA_ASSERT(false, "this pass has no states of layers");
}

std::vector<LayerState> CacheStep::states(int64_t layer) const {
  std::vector<LayerState> result;
  for (const int64_t number : sequences_) {
    const auto& states = cache_.find(number).states;
    const auto found = states.find(layer);
    result.push_back(found == states.end() ? LayerState() : found->second);
  }
  return result;
}

void CacheStep::set_states(int64_t layer, std::vector<LayerState> states) const {
  states_[layer] = std::move(states);
}

at::Tensor CacheStep::attend(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const ops::AttentionFormula& formula) const {
  layer -= cache_.options_.first_layer;
  TESSERA_ASSERT(layer >= 0 && layer < cache_.options_.num_layers, "layer of the cache");
  const KvCacheOptions& options = cache_.options_;
  if (cache_.layer_rows_.empty() && options.heads.empty()) return attend_in(batch_, layer, q, k, v, formula);
  ops::CachedBatch batch = batch_;
  const CachedHeads heads = options.heads_of(layer);
  batch.num_kv_heads = heads.num_kv_heads;
  batch.head_dim = heads.head_dim;
  const int64_t first = options.elements_before(layer), count = options.elements_before(layer + 1) - first;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const KvCache::Sequence& sequence = cache_.find(sequences_[i]);
    std::vector<at::Tensor>& pages = batch.sequences[i].pages;
    pages.resize(sequence.first_page);
    for (const size_t page : sequence.pages)
      pages.push_back(cache_.layer_rows_.empty() ? cache_.pages_[page].narrow(0, first, count)
                                                 : cache_.layer_rows_[static_cast<size_t>(layer)].select(
                                                       0, static_cast<int64_t>(page)));
  }
  return attend_in(batch, 0, q, k, v, formula);
}

at::Tensor CacheStep::attend_in(const ops::CachedBatch& batch, int64_t layer, const at::Tensor& q,
                                const at::Tensor& k, const at::Tensor& v,
                                const ops::AttentionFormula& formula) const {
  ops::write_cache(batch, layer, k, v);
  // If no sequence has earlier tokens, the new ones see only themselves, which the kernel for whole documents
  // does faster. But those that are not what the cache keeps of them must not depend on the rest of the
  // batch.
  if (is_fresh_ && batch.dtype != ops::kCodedCache) return ops::document_attention(q, k, v, starts_, formula);
  return ops::cached_attention(q, batch, layer, formula);
}

at::Tensor PlacedStep::attend(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const ops::AttentionFormula& formula) const {
  ops::PlacedTokens tokens = tokens_;
  layer -= cache_.options().first_layer;
  const CachedHeads heads = cache_.options().heads_of(layer);
  tokens.num_kv_heads = heads.num_kv_heads;
  tokens.head_dim = heads.head_dim;
  tokens.pages = cache_.layer_rows().at(static_cast<size_t>(layer));
  return ops::placed_attention(q, k, v, tokens, /*layer=*/0, formula);
}

void CacheStep::finish() {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    KvCache::Sequence& sequence = cache_.find(sequences_[i]);
    sequence.length = batch_.sequences[i].length;
    for (auto& [layer, states] : states_) sequence.states[layer] = std::move(states[i]);
    cache_.release_unseen(sequence);
  }
  is_finished_ = true;
}

}  // namespace tessera::nn
