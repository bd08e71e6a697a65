// The gated delta rule: attention whose memory of a document is one matrix a head.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::ops {

// Elements of a head's queries and keys, and of its values.
struct DeltaHead {
  int64_t key_dim = 0, value_dim = 0;
};

struct DeltaInputs {
  // [tokens, key heads, 2 key_dim + values value_dim]: the query, the key and the `values` values of each key
  // head, side by side. Value head h reads query and key of key head h / values.
  at::Tensor rows;
  // [tokens, value heads]: the logarithm of the share of its memory that a head keeps, at most 0, and the
  // strength with which it writes.
  at::Tensor log_decay, strength;
};

// Reads and writes, token by token, the memory S of each value head, [key_dim, value_dim], which is 0 where a
// document begins (Yang et al., "Gated Delta Networks", arXiv 2412.06464, equation 10):
//
//   S *= exp(log_decay);  S += key (strength (value - key^T S));  out = query^T S
//
// Queries and keys are divided by the root of their square sum plus 1e-6, and queries by that of key_dim.
// Tokens are worked on in chunks, by products of matrices (section 3.3 there).
//
// rows: float32, float64, bfloat16 or float16; the others any of these types. All is computed in float32, or
// float64 for float64. document_starts: [documents + 1], first 0, last tokens, not decreasing. Returns
// [tokens, value heads, value_dim], contiguous, of the type of the rows. Saves its inputs and, for each chunk
// of 64 tokens, the memory before it.
at::Tensor gated_delta_rule(const DeltaInputs& inputs, const DeltaHead& head,
                            const std::vector<int64_t>& document_starts);

// Does the same without gradient for documents that go on: `memory`, [documents, value heads, key_dim,
// value_dim] in the type of computation, is that before their first tokens. Returns the result and the memory
// after their last tokens. Every document has at least one token. With one token of each document, the
// numbers of one do not depend on the others, to the bit.
std::pair<at::Tensor, at::Tensor> continue_delta_rule(const DeltaInputs& inputs, const DeltaHead& head,
                                                      const std::vector<int64_t>& document_starts,
                                                      const at::Tensor& memory);

}  // namespace tessera::ops
