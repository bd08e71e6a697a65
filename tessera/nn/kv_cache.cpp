#include "tessera/nn/kv_cache.h"

#include <algorithm>
#include <set>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/ops/attention.h"

namespace tessera::nn {
KvCache::KvCache(const KvCacheOptions& options) : options_(options) {
  TESSERA_ASSERT(
      options.num_layers > 0 && options.num_kv_heads > 0 && options.head_dim > 0 && options.max_pages >= 0,
      "shape of the cache");
}

int64_t KvCache::add() {
  sequences_[next_];
  return next_++;
}

void KvCache::drop(int64_t sequence) {
  shrink(find(sequence), 0);
  sequences_.erase(sequence);
}

int64_t KvCache::length(int64_t sequence) const { return find(sequence).length; }

void KvCache::truncate(int64_t sequence, int64_t length) {
  TESSERA_ASSERT(length >= 0, "length of a sequence");
  Sequence& found = find(sequence);
  found.length = std::min(found.length, length);
  shrink(found, static_cast<size_t>(pages_for(found.length)));
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

// Leaves the sequence its first `pages` pages.
void KvCache::shrink(Sequence& sequence, size_t pages) noexcept {
  while (sequence.pages.size() > pages) {
    free_.push_back(sequence.pages.back());  // it has room for all pages
    sequence.pages.pop_back();
  }
}

// Gives the sequence the pages that `tokens` tokens need. On an error it may have got some of them.
void KvCache::grow(Sequence& sequence, int64_t tokens) {
  const size_t wanted = static_cast<size_t>(pages_for(tokens));
  while (sequence.pages.size() < wanted) {
    if (free_.empty() && options_.max_pages > 0 && allocated_pages() >= options_.max_pages) {
      throw Error(ErrorKind::Memory, "KV-CACHE", "the cache of keys and values is full")
          .got(std::to_string(options_.max_pages * kPageTokens) + " tokens in all")
          .hint("generate fewer sequences at once, or allow a larger cache");
    }
    if (free_.empty()) {
      free_.reserve(pages_.size() + 1);
      pages_.push_back(
          at::empty({ops::cache_page_elements(options_.num_layers, options_.num_kv_heads, options_.head_dim)},
                    at::TensorOptions().dtype(options_.dtype)));
      free_.push_back(pages_.size() - 1);
    }
    sequence.pages.push_back(free_.back());
    free_.pop_back();
  }
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
  cache_.grow(sequence, part.length);
  for (const size_t page : sequence.pages) part.pages.push_back(cache_.pages_[page].mutable_data_ptr());
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
    cache_.shrink(sequence, static_cast<size_t>(KvCache::pages_for(sequence.length)));
  }
}

at::Tensor CacheStep::attend(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             double scale) const {
  TESSERA_ASSERT(layer >= 0 && layer < cache_.options_.num_layers, "layer of the cache");
  ops::write_cache(batch_, layer, k, v);
  // Prompts see nothing but themselves, which the kernel for whole documents does faster.
  if (is_fresh_) return ops::document_attention(q, k, v, starts_, scale);
  return ops::cached_attention(q, batch_, layer, scale);
}

void CacheStep::finish() {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    cache_.find(sequences_[i]).length = batch_.sequences[i].length;
  }
  is_finished_ = true;
}

}  // namespace tessera::nn
