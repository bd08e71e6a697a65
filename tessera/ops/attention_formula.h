// The formula of attention in one value, which all code that computes attention reads.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "tessera/ops/kernels/key_band.h"

namespace tessera::ops {

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

  // Throws Error(Config, "ARGUMENT") for a scale that is not positive, or a window or a soft cap that is
  // negative.
  void check() const;

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

// Returns which of the span's keys its queries see.
kernels::KeyBand key_band(const AttentionSpan& span, const AttentionFormula& formula);

}  // namespace tessera::ops
