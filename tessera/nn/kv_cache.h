// Keys and values of the tokens that sequences have already passed, for generation.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/core/device.h"
#include "tessera/nn/sequence.h"
#include "tessera/ops/cached_attention.h"
#include "tessera/ops/placed_attention.h"

namespace tessera::nn {

struct KvCacheOptions {
  // Of a model's layers, those from `first_layer` on.
  int64_t num_layers = 0, num_kv_heads = 0, head_dim = 0, first_layer = 0;
  at::ScalarType dtype = at::kFloat;
  at::Device device = kHost;
  int64_t max_pages = 0;  // of kPageTokens tokens; 0 = no bound but memory
  // The most tokens that any layer's queries look back over, themselves included; 0 = all.
  int64_t window = 0;
};

// Any number of sequences, all layers. A sequence owns pages of kPageTokens tokens, which go back to a common
// stock when it is freed, so sequences come and go without copies and waste less than a page each. With a
// window, pages go back as soon as no later token sees them.
class KvCache {
 public:
  static constexpr int64_t kPageTokens = ops::kCachePageTokens;
  static constexpr int64_t pages_for(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

  explicit KvCache(const KvCacheOptions& options);

  // A new, empty sequence; its number is never given again.
  int64_t add();
  void free(int64_t sequence);
  // Tokens that went through every layer.
  int64_t length(int64_t sequence) const;
  // Frees the tokens after the first `length`. Throws Error(Config, "ARGUMENT") if the cache no longer has
  // what the next token would see.
  void truncate(int64_t sequence, int64_t length);

  // The most pages that a sequence owns at a time on its way to `tokens`, of which `prompt` come at once.
  int64_t most_pages(int64_t prompt, int64_t tokens) const;

  int64_t num_sequences() const { return static_cast<int64_t>(sequences_.size()); }
  // Pages that belong to sequences now, and that exist.
  int64_t used_pages() const { return static_cast<int64_t>(pages_.size() - free_.size()); }
  int64_t allocated_pages() const { return static_cast<int64_t>(pages_.size()); }
  int64_t page_bytes() const;

  // On a device with streams pages are rows of one tensor, [pages + 1, elements of a page], so that they can
  // be found by numbers there; the last row is no sequence's. When pages are added it is another one.
  // Undefined elsewhere, and before the first page.
  const at::Tensor& page_rows() const { return rows_; }
  // The rows that a sequence owns, in the order of its tokens, and the position of the first of those.
  std::span<const size_t> pages_of(int64_t sequence) const { return find(sequence).pages; }
  int64_t first_held(int64_t sequence) const {
    return static_cast<int64_t>(find(sequence).first_page) * kPageTokens;
  }
  const KvCacheOptions& options() const { return options_; }

 private:
  friend class CacheStep;
  struct Sequence {
    int64_t length = 0;
    size_t first_page = 0;      // those before went back
    std::vector<size_t> pages;  // from first_page on
  };

  Sequence& find(int64_t sequence);
  const Sequence& find(int64_t sequence) const;
  void shrink(Sequence& sequence, int64_t tokens) noexcept;
  void grow(Sequence& sequence, int64_t tokens);
  void add_pages();
  // The first page that the sequence's next token sees.
  size_t first_seen_page(int64_t length) const;
  void release_unseen(Sequence& sequence) noexcept;

  KvCacheOptions options_;
  int64_t next_ = 0;
  std::map<int64_t, Sequence> sequences_;
  std::vector<at::Tensor> pages_;
  at::Tensor rows_;  // of which pages_ are views, where it is defined
  std::vector<size_t> free_;
};

// One forward pass of a model over new tokens of some sequences. Until finish() the cache's lengths stay what
// they were; a pass that fails leaves no trace, and its pages go back with it. The cache must outlive it.
class CacheStep : public CacheView {
 public:
  // sequences: different ones; starts: [sequences + 1], where each sequence's new tokens begin in the batch,
  // first 0, rising. Throws Error(Memory, "KV-CACHE") if the pages do not suffice.
  CacheStep(KvCache& cache, const std::vector<int64_t>& sequences, const std::vector<int64_t>& starts);
  ~CacheStep() override;
  CacheStep(const CacheStep&) = delete;
  CacheStep& operator=(const CacheStep&) = delete;

  at::Tensor attend(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const ops::AttentionFormula& formula) const override;
  // The positions of the new tokens in their sequences.
  const std::vector<int64_t>& positions() const { return positions_; }
  // The new tokens count from now on.
  void finish();

 private:
  void add(int64_t sequence, int64_t begin, int64_t end);
  void give_back() noexcept;

  KvCache& cache_;
  std::vector<int64_t> sequences_, starts_, positions_;
  ops::CachedBatch batch_;
  bool is_fresh_ = true;  // no sequence has a past
  bool is_finished_ = false;
};

// The same for one new token of each row, of which the device alone knows what lies where. What a recording
// reads and writes are these tensors. first_layer: that of the cache.
class PlacedStep : public CacheView {
 public:
  PlacedStep(ops::PlacedTokens tokens, int64_t first_layer)
      : tokens_(std::move(tokens)), first_layer_(first_layer) {}
  at::Tensor attend(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const ops::AttentionFormula& formula) const override {
    return ops::placed_attention(q, k, v, tokens_, layer - first_layer_, formula);
  }

 private:
  ops::PlacedTokens tokens_;
  int64_t first_layer_;
};

}  // namespace tessera::nn
