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
  bool has(int64_t sequence) const { return sequences_.contains(sequence); }
  // Tokens that went through every layer.
  int64_t length(int64_t sequence) const;
  // Frees the tokens after the first `length`. Throws Error(Config, "ARGUMENT") if the cache no longer has
  // what the next token would see.
  void truncate(int64_t sequence, int64_t length);

  // The most pages that a sequence owns at a time on its way to `tokens`, of which `prompt` come at once.
  int64_t most_pages(int64_t prompt, int64_t tokens) const;

  int64_t num_sequences() const { return static_cast<int64_t>(sequences_.size()); }
  // Pages that belong to sequences now, and that exist.
  int64_t used_pages() const { return static_cast<int64_t>(num_pages_ - free_.size()); }
  int64_t allocated_pages() const { return static_cast<int64_t>(num_pages_); }
  int64_t page_bytes() const;

  // On a device with streams a layer's part of pages are rows of a tensor, [at least pages + 1, elements of a
  // layer in a page], so that they can be found by numbers there; row allocated_pages() is no sequence's.
  // When pages are added they are a quarter of those that there are, at least, and each layer's tensor is
  // another one: it is made, filled, and the old one goes back before the next layer's is made, so that the
  // most that there is are the new cache and one layer of the old. Empty elsewhere, and before the first
  // page.
  const std::vector<at::Tensor>& layer_rows() const { return layer_rows_; }
  // How often one of them has become another one.
  int64_t num_moves() const { return num_moves_; }
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
  // Pages that `tokens` tokens need beside those that the sequence has.
  size_t missing_pages(const Sequence& sequence, int64_t tokens) const;
  void make_room(size_t missing);
  void move_rows(size_t pages);
  // The first page that the sequence's next token sees.
  size_t first_seen_page(int64_t length) const;
  void release_unseen(Sequence& sequence) noexcept;

  KvCacheOptions options_;
  int64_t next_ = 0;
  std::map<int64_t, Sequence> sequences_;
  size_t num_pages_ = 0;
  std::vector<at::Tensor> pages_;  // of all layers, where there are no layer_rows_
  std::vector<at::Tensor> layer_rows_;
  int64_t num_moves_ = 0;
  std::vector<size_t> free_;  // with room for all pages
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
  // attend(), with a layer of the pages of a batch.
  at::Tensor attend_in(const ops::CachedBatch& batch, int64_t layer, const at::Tensor& q, const at::Tensor& k,
                       const at::Tensor& v, const ops::AttentionFormula& formula) const;

  KvCache& cache_;
  std::vector<int64_t> sequences_, starts_, positions_;
  ops::CachedBatch batch_;  // without pages, where the cache has layer_rows()
  bool is_fresh_ = true;    // no sequence has a past
  bool is_finished_ = false;
};

// The same for one new token of each row, of which the device alone knows what lies where. What a recording
// reads and writes are the tokens' tensors, but for `pages`, and the cache's layer_rows(). The cache must
// outlive it and move none of them.
class PlacedStep : public CacheView {
 public:
  PlacedStep(const KvCache& cache, ops::PlacedTokens tokens) : cache_(cache), tokens_(std::move(tokens)) {}
  at::Tensor attend(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const ops::AttentionFormula& formula) const override;

 private:
  const KvCache& cache_;
  ops::PlacedTokens tokens_;
};

}  // namespace tessera::nn
