// Attention by its formula, for the kinds that have no kernel.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::ops {

struct AttentionFormula {
  double scale = 1.0;     // multiplies q k^T
  bool is_causal = true;  // else every token sees its whole document
  double soft_cap = 0.0;  // scores s become soft_cap tanh(s / soft_cap); 0: they stay
};

// softmax(scores) v inside every document, of LibTorch's operations, differentiable by autograd; the scores
// and the softmax in float32 (float64 for float64). Shapes as of document_attention(). Holds the scores of a
// document, [heads, length, length].
at::Tensor general_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::vector<int64_t>& document_starts, const AttentionFormula& formula);

}  // namespace tessera::ops
