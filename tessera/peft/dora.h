// The lengths of a weight's rows, for adapters that train them apart from the rows' directions (Liu et al.,
// "DoRA: Weight-Decomposed Low-Rank Adaptation", arXiv 2402.09353, equation 5).
#pragma once

#include <ATen/core/Tensor.h>

#include "tessera/ops/pass_through.h"
#include "tessera/ops/weight.h"

namespace tessera::peft {

// Returns the Euclidean norms of the rows of weight + scaling b a, [out], in float32 or, with a float64 `a`,
// in float64; a row of zeros counts as one of length 1, since it has no direction. Without autograd, as in
// the paper (section 4.3). weight: [out, in]; a: [rank, in]; b: [out, rank]. If they hold some of the columns
// alone, `sum` adds up a tensor over the ranks that hold the others; this is collective then. Needs 4 MiB
// beside the result.
at::Tensor row_norms(const ops::Weight& weight, const at::Tensor& a, const at::Tensor& b, double scaling,
                     const ops::ChangeInPlace& sum = {});

}  // namespace tessera::peft
