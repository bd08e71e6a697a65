// The formula of attention in one value, which all code that computes attention reads.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "tessera/ops/kernels/key_band.h"

namespace tessera::ops {

// Dropout of attention's probabilities, in training: after the softmax each is set to 0 with `probability`,
// and otherwise multiplied by 1 / (1 - probability). What becomes of a pair is a function of its query's draw
// and of the distance between the two in their document, and so the same wherever the pair is computed.
struct AttentionDropout {
  double probability = 0.0;  // below 1
  // 64 random bits for each query and head, [queries, heads] int64 on the device of the queries.
  at::Tensor draws = {};

  // A pair is dropped if its word (kernels::pair_word()) is below the threshold.
  uint32_t threshold() const { return static_cast<uint32_t>(probability * 0x1.0p32); }
  double factor() const { return 1.0 / (1.0 - probability); }
};

// softmax(scores) v over the keys that a query sees. A query at position p sees the keys of its document at
// positions up to p, or at all positions if the formula is not causal; with a window, it sees no key that is
// `window` or more positions away. The default, apart from the scale, is causal attention.
struct AttentionFormula {
  double scale = 1.0;  // scores are scale q k^T
  bool is_causal = true;
  int64_t window = 0;     // 0: no window
  double soft_cap = 0.0;  // scores s become soft_cap tanh(s / soft_cap); 0: no cap
  // Sinks (Xiao et al., arXiv 2309.17453; as in OpenAI, arXiv 2508.10925), [heads] of any floating type: each
  // query sees one more key, whose score is its head's sink and whose value is 0. Undefined: there are none.
  at::Tensor sinks = {};
  AttentionDropout dropout = {};

  // Throws Error(Config, "ARGUMENT") for a scale that is not positive, or a window or a soft cap that is
  // negative.
  void check() const;

  // Returns the formula for rows of the queries: those from `first` on, whose draws alone it keeps.
  AttentionFormula of_queries(int64_t first, int64_t count) const;

  // The formula without its sinks, in the form that autograd's contexts keep, and back.
  at::IValue to_value() const;
  static AttentionFormula from_value(const at::IValue& value);
};

// Successive queries and the successive keys that they may see: rows of q, and rows of k and v.
struct AttentionSpan {
  int64_t first_query = 0, queries = 0;
  int64_t first_key = 0, keys = 0;
  // Position of the first query minus that of the first key, in their document; may be negative.
  int64_t ahead = 0;
};

// Returns one span for each document that has tokens. starts: [documents + 1], as in nn::TokenBatch.
std::vector<AttentionSpan> spans_of_documents(const std::vector<int64_t>& starts);

// Returns what dropout multiplies the probabilities of a span's pairs with, [heads, queries, keys] of this
// type, by LibTorch's operations.
at::Tensor dropout_factors(const AttentionDropout& dropout, const AttentionSpan& span, at::ScalarType type);

// Returns which of the span's keys its queries see.
kernels::KeyBand key_band(const AttentionSpan& span, const AttentionFormula& formula);

}  // namespace tessera::ops
