// How tokens flow through a model: laid end to end in one dimension, documents marked by their starts. There
// is no padding anywhere; a batch of B sequences is B documents.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/nn/router_balance.h"
#include "tessera/ops/attention_formula.h"
#include "tessera/ops/linear_cross_entropy.h"

namespace tessera::nn {

// The cache of keys and values of one forward pass over new tokens.
class CacheView {
 public:
  virtual ~CacheView() = default;

  // Adds the new tokens' k and v, [new tokens, kv_heads, head_dim], to a layer of the model and attends from
  // q, [new tokens, heads, head_dim], to all that its sequence has had: [new tokens, heads, head_dim],
  // contiguous.
  virtual at::Tensor attend(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const ops::AttentionFormula& formula) const = 0;
};

// Tokens that follow each other in a line.
struct TokenRun {
  int64_t first = 0, count = 0;
};
// One run after the other; nothing: the whole line.
using TokenPart = std::optional<std::vector<TokenRun>>;

// One micro-batch. All tensors are int64 on the host, of size [tokens]: a model takes what it needs to its
// device.
struct TokenBatch {
  at::Tensor input_ids;
  // Already shifted: labels[i] is the token that position i must predict, or -100 where nothing is trained.
  // May be undefined where no loss is asked for.
  at::Tensor labels;
  // Restarts at 0 in every document.
  at::Tensor position_ids;
  // [documents + 1], first 0, last = tokens, not decreasing.
  std::vector<int64_t> document_starts;
  // Where it has a value, the tensors hold these tokens alone of the line that document_starts describes
  // (context parallelism).
  TokenPart part = {};
  // Bool, like the others: tokens that are no part of the data, which a layout has added. Undefined: none.
  at::Tensor is_added = {};
  // Where the losses of parts of the data are asked for too.
  std::optional<ops::LossSources> sources = {};
  // Where the values of the routers' losses are asked for (RouterBalance::add_loss()): where the model
  // computes.
  at::Tensor router_values = {};
};

// What every block of one forward pass shares. Copied into hooks that run a block again later, so it owns
// what it needs; only the cache is borrowed, and only while generating.
struct SequenceContext {
  std::vector<int64_t> document_starts;
  const CacheView* cache = nullptr;
  // The tables of rotary positions, [tokens, head_dim / 2]; undefined where a family has none.
  at::Tensor cos, sin;
  // As of the TokenBatch.
  TokenPart part = {};
  at::Tensor is_added = {};
  // Of the micro-batch; null where nothing asks for it.
  c10::intrusive_ptr<RouterBalance> router_balance = {};
};

// What a layer of a cache holds of every token.
struct CachedHeads {
  int64_t num_kv_heads = 0, head_dim = 0;
  int64_t window = 0;  // ops::AttentionFormula
};

}  // namespace tessera::nn
