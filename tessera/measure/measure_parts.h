// Measures how long each part of a model takes, for the stages of a pipeline.
#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>

#include "tessera/device/device.h"
#include "tessera/models/common/causal_lm.h"
#include "tessera/parallel/pipeline/split_blocks.h"

namespace tessera::measure {

struct MeasureOptions {
  at::Device device = kHost;
  at::ScalarType dtype = at::kFloat;  // of the computation
  int64_t documents = 1, document_tokens = 512;
  int64_t checkpoint_every = 0;  // as in ParallelizeOptions
  bool recompute_mlps = false;
};

// Returns the seconds that the forward and backward of a micro-batch take: of the embedding, of each block,
// and of the output projection with the loss of all tokens. Blocks of one kind (the same parameters, trained
// or not, windows and recomputation) are measured once. `model` is whole and on the meta device, with its
// adapters, before and after the call; at most the output projection and one other part have memory at a
// time. Not collective.
parallel::PartCosts measure_parts(models::CausalLM& model, const MeasureOptions& options);

}  // namespace tessera::measure
