// The gated delta rule between the projections of a mixer: from the rows of the projections to what each
// token reads.
#pragma once

#include <memory>

#include "tessera/nn/sequence.h"
#include "tessera/ops/gated_delta_rule.h"

namespace tessera::nn {

// Interface that context parallelism replaces, since it cuts documents into pieces. read() runs a second time
// if a hook reruns its block in the backward (activation checkpointing).
class DeltaCore {
 public:
  virtual ~DeltaCore() = default;

  // Returns [tokens, value heads, value_dim]: ops::gated_delta_rule() of the rows, behind their convolution
  // with `taps`, [channels, taps], and silu. A channel is an element of the rows of a token. `layer` is the
  // number of the mixer.
  virtual at::Tensor read(const ops::DeltaInputs& inputs, const at::Tensor& taps, const ops::DeltaHead& head,
                          const SequenceContext& context, int64_t layer) const = 0;
};

// Returns the core that works inside every document of the context or, if the context has a cache, goes on
// with the sequences of the cache. The cache keeps the last rows before the convolution, as many as it looks
// back, and the memory of the heads.
std::shared_ptr<const DeltaCore> document_delta();

}  // namespace tessera::nn
