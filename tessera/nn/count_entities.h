// Counts the entities that a classifier of tokens finds in the documents of a micro-batch.
#pragma once

#include "tessera/core/classification.h"
#include "tessera/nn/sequence.h"
#include "tessera/ops/pass_through.h"

namespace tessera::nn {

// Adds the statistics of entities (core/entity_metrics.h) to batch.statistics, document by document.
// `positions`, [labels] int64 on the host, are those of the labelled tokens in the batch; `tags` and
// `predicted`, [labels] int64, the numbers of their classes. Where the batch has a part of its line, `sum`
// sums a tensor over the ranks that have the others, in place, and one of them counts. Collective over these.
void count_entities(const Classification& classification, const TokenBatch& batch,
                    const at::Tensor& positions, const at::Tensor& tags, const at::Tensor& predicted,
                    const ops::ChangeInPlace& sum);

}  // namespace tessera::nn
