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
  resize(find(sequence), 0);
  sequences_.erase(sequence);
}

int64_t KvCache::length(int64_t sequence) const { return find(sequence).length; }

void KvCache::truncate(int64_t sequence, int64_t length) {
  TESSERA_ASSERT(length >= 0, "length of a sequence");
  Sequence& found = find(sequence);
  found.length = std::min(found.length, length);
  resize(found, found.length);
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

// Gives the sequence the pages for `tokens` tokens, no more and no fewer; on an error it keeps what it had.
void KvCache::resize(Sequence& sequence, int64_t tokens) {
  const size_t before = sequence.pages.size(), wanted = static_cast<size_t>(pages_for(tokens));
  const auto shrink = [&](size_t size) {
    while (sequence.pages.size() > size) {
      free_.push_back(sequence.pages.back());
      sequence.pages.pop_back();
    }
  };
  shrink(wanted);
  while (sequence.pages.size() < wanted) {
    if (free_.empty() && options_.max_pages > 0 && allocated_pages() >= options_.max_pages) {
      shrink(before);
      throw Error(ErrorKind::Memory, "KV-CACHE", "the cache of keys and values is full")
          .got(std::to_string(options_.max_pages * kPageTokens) + " tokens in all")
          .hint("generate fewer sequences at once, or allow a larger cache");
    }
    if (free_.empty()) {
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
  for (size_t i = 0; i < sequences.size(); ++i) {
    KvCache::Sequence& sequence = cache.find(sequences[i]);
    ops::CachedSequence part;
    part.first = starts[i];
    part.added = starts[i + 1] - starts[i];
    part.length = sequence.length + part.added;
    TESSERA_ASSERT(part.added > 0, "a sequence of a cache step has no new token");
    cache.resize(sequence, part.length);
    for (const size_t page : sequence.pages) part.pages.push_back(cache.pages_[page].mutable_data_ptr());
    for (int64_t token = 0; token < part.added; ++token) positions_.push_back(sequence.length + token);
    is_fresh_ = is_fresh_ && sequence.length == 0;
    batch_.sequences.push_back(std::move(part));
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
}

}  // namespace tessera::nn
