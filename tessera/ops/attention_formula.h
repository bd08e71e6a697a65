// What attention computes, in one value that all who compute it read.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/ivalue.h>

#include "tessera/ops/kernels/key_band.h"

namespace tessera::ops {

// softmax(scores) v over the keys that a query sees. A query at position p sees the keys of its document at
// the positions up to p, or at all where it is not causal, and with a window none that is `window` or more
// positions away. The default but for the scale is causal attention.
struct AttentionFormula {
  double scale = 1.0;  // scores = scale q k^T
  bool is_causal = true;
  int64_t window = 0;     // 0: no window
  double soft_cap = 0.0;  // scores s become soft_cap tanh(s / soft_cap); 0: they stay

  // Throws Error(Config, "ARGUMENT") for numbers that mean nothing.
  void check() const;

  // For autograd's contexts.
  at::IValue to_value() const;
  static AttentionFormula from_value(const at::IValue& value);
};

// A run of queries and the run of keys that they may see: rows of q, and of k and v.
struct AttentionSpan {
  int64_t first_query = 0, queries = 0;
  int64_t first_key = 0, keys = 0;
  // The position of the first query less that of the first key; of any sign.
  int64_t ahead = 0;
};

// One for each document that has tokens. starts: [documents + 1], as in nn::TokenBatch.
std::vector<AttentionSpan> spans_of_documents(const std::vector<int64_t>& starts);

// What the span's queries see of its keys.
kernels::KeyBand key_band(const AttentionSpan& span, const AttentionFormula& formula);

}  // namespace tessera::ops
