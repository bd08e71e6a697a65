// The short convolution between the projections of a mixer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/nn/sequence.h"

namespace tessera::nn {

// Interface that context parallelism replaces, since it cuts documents into pieces. convolve() runs a second
// time if a hook reruns its block in the backward (activation checkpointing).
class ConvolutionCore {
 public:
  virtual ~ConvolutionCore() = default;

  // Returns ops::causal_convolution() of the rows, [tokens, channels], with `taps`, [channels, taps], and
  // without silu. `layer` is the number of the mixer.
  virtual at::Tensor convolve(const at::Tensor& rows, const at::Tensor& taps, const SequenceContext& context,
                              int64_t layer) const = 0;
};

// Returns the core that works inside every document of the context or, if the context has a cache, goes on
// with the sequences of the cache, which keeps the last rows, as many as the convolution looks back.
std::shared_ptr<const ConvolutionCore> document_convolution();

// Returns ops::causal_convolution() of new rows, [tokens, channels], of sequences that begin at `starts`
// among them. The first tensor of a sequence's state holds the rows before, and becomes those before the
// next; a sequence without a state is a new one.
at::Tensor continue_convolution(const at::Tensor& rows, const at::Tensor& taps,
                                const std::vector<int64_t>& starts, bool has_silu,
                                std::vector<LayerState>& states);

}  // namespace tessera::nn
