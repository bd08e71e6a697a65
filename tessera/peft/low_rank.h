// Pairs of factors that begin with the main part of a weight.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "tessera/peft/lora.h"

namespace tessera::peft {

// Factors of a matrix: [rank, in] and [out, rank].
struct LowRank {
  at::Tensor a, b;
};

// Returns the factors with which an adapter of this start begins on `weight`, [out, in] in float64 on the
// host; `start` reads the base's weight, and `rank` is at most the smaller size of the weight.
//
// PiSSA (Meng et al., arXiv 2404.02948, equations 2 to 4): of the singular value decomposition U S V^T, A is
// sqrt(S / scaling) V^T and B is U sqrt(S / scaling), for the `rank` largest values; the largest element of
// each column of U is positive. With iterations, the decomposition is the one of Halko et al., arXiv
// 0909.4061, algorithms 4.4 and 5.1, from random numbers of `stream`. OLoRA (Büyükakyüz, arXiv 2406.01775,
// section 3): of the decomposition Q R, B is the first `rank` columns of Q, and A the first rows of R. LoftQ:
// those of PiSSA, of a `weight` that is what quantisation has taken away.
LowRank initial_factors(const at::Tensor& weight, int64_t rank, double scaling, const LoraStart& start,
                        uint64_t stream);

}  // namespace tessera::peft
