// The short convolution along the tokens of documents that recurrent mixers begin with.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::ops {

// Returns the sum over j < taps of weight[channel, taps - 1 - j] x[token - j, channel], over those tokens
// that lie in the same document, or the silu of it: each channel is convolved along the tokens on its own,
// and no token sees a later one or another document.
//
// x: [tokens, channels] in float32, float64, bfloat16 or float16; weight: [channels, taps], any of these
// types. document_starts: [documents + 1], first 0, last tokens, not decreasing. The result is contiguous, of
// x's shape and type. Saves x and the weight.
at::Tensor causal_convolution(const at::Tensor& x, const at::Tensor& weight,
                              const std::vector<int64_t>& document_starts, bool has_silu);

}  // namespace tessera::ops
