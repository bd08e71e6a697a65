// How tokens flow through a model: the documents of a micro-batch are laid end to end in one dimension, and
// marked by their starts. There is no padding anywhere; a batch of B sequences is B documents.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/nn/router_balance.h"
#include "tessera/ops/attention_formula.h"
#include "tessera/ops/linear_cross_entropy.h"

namespace tessera::nn {

// The cache of keys and values as one forward pass over new tokens sees it.
class CacheView {
 public:
  virtual ~CacheView() = default;

  // Adds the new tokens' k and v, [new tokens, kv_heads, head_dim], to layer `layer` of the model's cache.
  // Each new token then attends from its row of q, [new tokens, heads, head_dim], to all tokens that its
  // sequence has had. Returns [new tokens, heads, head_dim], contiguous.
  virtual at::Tensor attend(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const ops::AttentionFormula& formula) const = 0;
};

// A run of consecutive tokens of the line of a micro-batch's documents.
struct TokenRun {
  int64_t first = 0, count = 0;
};
// Runs of a line, one after the other; nullopt stands for the whole line.
using TokenPart = std::optional<std::vector<TokenRun>>;

// One micro-batch. All tensors are int64 on the host, of shape [tokens], unless they say otherwise; a model
// copies what it needs to its device.
struct TokenBatch {
  at::Tensor input_ids;
  // The labels, already shifted: labels[i] is the token that position i must predict, or -100 where nothing
  // is trained. May be undefined if no loss is computed.
  at::Tensor labels;
  // Positions restart at 0 in every document.
  at::Tensor position_ids;
  // [documents + 1]: first 0, last the number of tokens, not decreasing.
  std::vector<int64_t> document_starts;
  // If it has a value, the tensors hold only these tokens of the line that document_starts describes (context
  // parallelism).
  TokenPart part = {};
  // [tokens] bool, on the host: marks tokens that are no part of the data but were added by a parallel
  // layout. Undefined: none.
  at::Tensor is_added = {};
  // Set if the losses of parts of the data are to be summed separately, too.
  std::optional<ops::LossSources> sources = {};
  // If defined, the routers' losses are added to it (`values` of RouterBalance::add_loss()). It lies on the
  // model's device.
  at::Tensor router_values = {};
};

// Rotary positions of the tokens of one forward pass, from one rule for the angles.
struct RotaryTable {
  at::Tensor cos, sin;  // [tokens, angles], where a head has at least twice as many elements as angles
  at::Tensor query_scale = {};  // [tokens, 1, 1], multiplies rotated queries; undefined: 1
};

// Data that all blocks of one forward pass share. Hooks that run a block again later keep a copy, so it owns
// what it needs; only the cache is borrowed, and only while generating.
struct SequenceContext {
  std::vector<int64_t> document_starts;
  const CacheView* cache = nullptr;
  // The tables that AttentionOptions::rotary counts; none for families without rotary positions.
  std::vector<RotaryTable> rotary = {};
  // Copied from the TokenBatch; is_added is then on the model's device.
  TokenPart part = {};
  at::Tensor is_added = {};
  // The routers' losses of the micro-batch; null if no weight of theirs is set.
  c10::intrusive_ptr<RouterBalance> router_balance = {};
};

// Shape of what one layer of a cache holds for each token.
struct CachedHeads {
  int64_t num_kv_heads = 0, head_dim = 0;
  int64_t window = 0;  // as in ops::AttentionFormula; 0 = none
};

}  // namespace tessera::nn
