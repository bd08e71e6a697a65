// How tokens flow through a model: the documents of a micro-batch are laid end to end in one dimension, and
// marked by their starts. There is no padding anywhere; a batch of B sequences is B documents.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/nn/router_balance.h"
#include "tessera/nn/shared_values.h"
#include "tessera/ops/attention_formula.h"
#include "tessera/ops/linear_cross_entropy.h"

namespace tessera::nn {

// The tensors that a layer with a state keeps of the tokens that a sequence has had; none before the first
// token. Nobody changes them.
using LayerState = std::vector<at::Tensor>;

// The cache of keys and values as one forward pass over new tokens sees it.
class CacheView {
 public:
  virtual ~CacheView() = default;

  // Returns what `layer`, the number of a layer among those with a state, keeps of each sequence of this
  // pass, in the order of their new tokens. The default throws Error(Internal): such a pass cannot run those
  // layers.
  virtual std::vector<LayerState> states(int64_t layer) const;
  // Replaces these states. The cache takes over the new ones when the pass has gone through all layers.
  virtual void set_states(int64_t layer, std::vector<LayerState> states) const;

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
  // The labels, already shifted: labels[i] is what position i must tell, the next token or a target, or -100
  // where nothing is trained. May be undefined if no loss is computed.
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
  // The kind of each token's text, for models that have an embedding of it; undefined: all are 0. For an
  // encoder-decoder 0 says that a token is of its document's source, and 1 that it is of the target, which
  // follows the source.
  at::Tensor type_ids = {};
  // [labels, numbers], float64 on the host: what a classifier is to tell at the labelled positions, whose
  // `labels` are then numbers of rows here. Undefined: the labels themselves are the classes.
  at::Tensor targets = {};
  // If defined, a classifier adds its class statistics (core/classification.h) to it: float64, on the model's
  // device.
  at::Tensor statistics = {};
};

// One side of the documents of a line: the places of its tokens in the line, [tokens of the side] int64, and
// where those of each document begin among them, [documents + 1].
struct DocumentSide {
  at::Tensor rows;
  std::vector<int64_t> starts;

  int64_t count() const { return starts.back(); }
};
// The documents of an encoder-decoder: each begins with its source, which the encoder reads; its target,
// which the decoder reads, follows. In a pass over a cache a document may have tokens of one side alone.
struct DocumentSides {
  DocumentSide source, target;
};

// Keys and values of the tokens of all sources, [tokens of the sources, heads, head_dim].
struct SourceMemory {
  at::Tensor k, v;
};

// Rotary positions of the tokens of one forward pass, from one rule for the angles.
struct RotaryTable {
  // [tokens, angles], where a head has at least twice as many elements as angles; undefined where nothing is
  // rotated.
  at::Tensor cos, sin;
  at::Tensor query_scale = {};  // [tokens, 1, 1], multiplies the queries; undefined: 1
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
  // Null unless the model is an encoder-decoder; the rows lie on the model's device.
  std::shared_ptr<const DocumentSides> sides = {};
  // The keys and values that the cross attention of a block reads; undefined outside such a block, and
  // without sources.
  SourceMemory memory = {};
  // The biases of keys, [tokens, heads of the model] (Alibi::table()); undefined for families without them.
  at::Tensor key_bias = {};
  // The vectors that LayerInputs makes for all layers; null for families without them.
  c10::intrusive_ptr<SharedValues> layer_inputs = {};
  // Keys and values that several layers read, which AttentionOptions::shared_keys counts.
  std::vector<c10::intrusive_ptr<SharedValues>> shared_keys = {};
};

// Shape of what one layer of a cache holds for each token.
struct CachedHeads {
  int64_t num_kv_heads = 0, head_dim = 0;  // 0 heads: the layer has no keys and values
  int64_t window = 0;                      // as in ops::AttentionFormula; 0 = none
};

}  // namespace tessera::nn
