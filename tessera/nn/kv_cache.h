// Keys and values of the tokens that sequences have already passed, for generation.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/device/device.h"
#include "tessera/nn/page_index.h"
#include "tessera/nn/sequence.h"
#include "tessera/ops/cached_attention.h"
#include "tessera/ops/placed_attention.h"

namespace tessera::nn {

struct KvCacheOptions {
  // Shape of the cache. It covers the layers [first_layer, first_layer + num_layers) of the model.
  int64_t num_layers = 0, num_kv_heads = 0, head_dim = 0, first_layer = 0;
  at::ScalarType dtype = at::kFloat;  // of keys and values, or ops::kCodedCache, on the host alone
  at::Device device = kHost;
  int64_t max_pages = 0;  // pages of kPageTokens tokens; 0 = bounded by memory alone
  // Largest number of tokens that the queries of any layer look back over, themselves included; 0 = all.
  int64_t window = 0;
  // Heads of each layer, where not all have num_kv_heads of head_dim; empty: all have.
  std::vector<CachedHeads> heads = {};

  CachedHeads heads_of(int64_t layer) const;
  // Returns the number of elements that the first `layers` layers have in a page.
  int64_t elements_before(int64_t layers) const;
};

// Holds any number of sequences over all its layers. A sequence owns pages of kPageTokens tokens, which
// return to a common pool when the sequence is freed; so sequences come and go without copies, and each
// wastes less than a page. With a window, pages return as soon as no later token sees them.
//
// A full page may get a key, by which a new sequence can share it; nobody writes into it then. A page with a
// key that no sequence has any more keeps what it holds until its memory is needed: of such pages the one
// that was left first is taken first.
class KvCache {
 public:
  static constexpr int64_t kPageTokens = ops::kCachePageTokens;
  static constexpr int64_t pages_for(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

  explicit KvCache(const KvCacheOptions& options);

  // Adds an empty sequence and returns its number, which is never given again.
  int64_t add();
  void free(int64_t sequence);
  bool has(int64_t sequence) const { return sequences_.contains(sequence); }
  // Returns the number of the sequence's tokens that went through every layer.
  int64_t length(int64_t sequence) const;
  // Tells whether the cache still has all that the next token behind the first `length` would see: pages, and
  // the states of layers, which are those behind the last token.
  bool can_truncate(int64_t sequence, int64_t length) const;
  // Drops the tokens after the first `length`. Throws Error(Config, "ARGUMENT") unless can_truncate().
  void truncate(int64_t sequence, int64_t length);

  // Returns the largest number of pages that a sequence owns at any time while it grows to `tokens` tokens,
  // of which the first `prompt` are added at once.
  int64_t most_pages(int64_t prompt, int64_t tokens) const;
  // Returns how many more pages a sequence needs to hold `tokens` tokens.
  int64_t missing_pages(int64_t sequence, int64_t tokens) const {
    return static_cast<int64_t>(missing_pages(find(sequence), tokens));
  }

  // The following functions need a cache without a window, whose sequences have no states of layers. `keys`
  // are those of the first pages of a text.
  //
  // Returns how many of these pages the cache holds, up to the first one that it does not.
  int64_t count_known(std::span<const PageKey> keys) const;
  // Returns how many of these pages, which the cache must hold, belong to no sequence.
  int64_t count_idle(std::span<const PageKey> keys) const;
  // Lets an empty sequence begin with these pages, which the cache must hold.
  void share(int64_t sequence, std::span<const PageKey> keys);
  // Gives the page `number` of a sequence, which must be full, its key. If another page has that key already,
  // the page stays without one.
  void set_key(int64_t sequence, int64_t number, const PageKey& key);

  int64_t num_sequences() const { return static_cast<int64_t>(sequences_.size()); }
  // Number of pages that belong to sequences now, and of pages that are allocated.
  int64_t used_pages() const { return static_cast<int64_t>(num_pages_ - free_.size() - index_.num_idle()); }
  int64_t allocated_pages() const { return static_cast<int64_t>(num_pages_); }
  int64_t page_bytes() const;

  // On a device with streams each layer has one tensor, [at least pages + 1, elements of one layer in a
  // page], of which each row is that layer's part of a page; kernels can so find pages by number. Row
  // allocated_pages() belongs to no sequence.
  //
  // When pages are added, at least a quarter of the present number is added, and each layer's tensor is
  // replaced by a larger one. This is done layer by layer: allocate, copy, free the old tensor. The peak is
  // thus the new cache and one layer of the old one.
  //
  // The vector is empty on devices without streams, and before the first page.
  const std::vector<at::Tensor>& layer_rows() const { return layer_rows_; }
  // Number of times that one of layer_rows() was replaced by another tensor.
  int64_t num_moves() const { return num_moves_; }
  // Pages that a sequence owns (rows of layer_rows()) in the order of its tokens, and the position of the
  // first token that they hold.
  std::span<const size_t> pages_of(int64_t sequence) const { return find(sequence).pages; }
  int64_t first_held(int64_t sequence) const {
    return static_cast<int64_t>(find(sequence).first_page) * kPageTokens;
  }
  const KvCacheOptions& options() const { return options_; }

 private:
  friend class CacheStep;
  struct Sequence {
    int64_t length = 0;
    size_t first_page = 0;                 // the pages before it were returned
    std::vector<size_t> pages;             // its pages from first_page on
    std::map<int64_t, LayerState> states;  // by layer
  };

  Sequence& find(int64_t sequence);
  const Sequence& find(int64_t sequence) const;
  void shrink(Sequence& sequence, int64_t tokens) noexcept;
  size_t missing_pages(const Sequence& sequence, int64_t tokens) const;
  void make_room(size_t missing);
  void allocate(size_t least, size_t most);
  void move_rows(size_t pages);
  // Takes a free page, of which there must be one.
  size_t take_page();
  // Ends the use of a page by one sequence.
  void release(size_t page) noexcept;
  // Returns the first page that the next token of a sequence of this length sees.
  size_t first_seen_page(int64_t length) const;
  void release_unseen(Sequence& sequence) noexcept;

  KvCacheOptions options_;
  int64_t next_ = 0;
  std::map<int64_t, Sequence> sequences_;
  size_t num_pages_ = 0;
  std::vector<at::Tensor> pages_;  // each for all layers; empty if layer_rows_ is used
  std::vector<at::Tensor> layer_rows_;
  int64_t num_moves_ = 0;
  std::vector<size_t> free_;         // has capacity for all pages, so that returning one cannot throw
  std::vector<int32_t> num_owners_;  // sequences that have each page
  PageIndex index_;
};

// One forward pass of a model over new tokens of some sequences. The cache's lengths change in finish() only,
// so a pass that fails leaves no trace: its pages return with the CacheStep. The cache must outlive it.
class CacheStep : public CacheView {
 public:
  // `sequences` are distinct numbers. `starts`, [sequences + 1], says where each sequence's new tokens begin
  // in the batch: first 0, strictly rising, last the number of new tokens. Throws Error(Memory, "KV-CACHE")
  // if the pages do not suffice.
  CacheStep(KvCache& cache, const std::vector<int64_t>& sequences, const std::vector<int64_t>& starts);
  ~CacheStep() override;
  CacheStep(const CacheStep&) = delete;
  CacheStep& operator=(const CacheStep&) = delete;

  at::Tensor attend(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const ops::AttentionFormula& formula) const override;
  std::vector<LayerState> states(int64_t layer) const override;
  void set_states(int64_t layer, std::vector<LayerState> states) const override;
  // Positions of the new tokens in their sequences: [new tokens].
  const std::vector<int64_t>& positions() const { return positions_; }
  // Adds the new tokens to the lengths of their sequences. Call it after the pass has gone through every
  // layer.
  void finish();

 private:
  void add(int64_t sequence, int64_t begin, int64_t end);
  void give_back() noexcept;
  // Does what attend() does, over layer `layer` of the pages of `batch`.
  at::Tensor attend_in(const ops::CachedBatch& batch, int64_t layer, const at::Tensor& q, const at::Tensor& k,
                       const at::Tensor& v, const ops::AttentionFormula& formula) const;

  KvCache& cache_;
  std::vector<int64_t> sequences_, starts_, positions_;
  ops::CachedBatch batch_;  // its page lists stay empty if the cache has layer_rows()
  mutable std::map<int64_t, std::vector<LayerState>> states_;  // those that set_states() gave, by layer
  bool is_fresh_ = true;                                       // no sequence has earlier tokens
  bool is_finished_ = false;
};

// One forward pass over one new token of each row, where only the device knows which sequence and page belong
// to a row; it can therefore be recorded and replayed. A recording reads and writes the tensors of `tokens`,
// except for `pages`, which each layer has of its own as it has its shape of heads, and the cache's
// layer_rows(). The cache must outlive this object and must not replace any of layer_rows() meanwhile.
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
