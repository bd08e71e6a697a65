#include "tessera/nn/random_scope.h"

#include "tessera/core/check_argument.h"
#include "tessera/core/rng.h"
#include "tessera/ops/counter_dropout.h"

namespace tessera::nn {

at::Tensor dropout_mask_here(const at::Tensor& x, double p, uint64_t stream, const RowPart& part) {
  const RandomPlace* place = RandomScope::current();
  TESSERA_CHECK_ARGUMENT(place != nullptr, "dropout in training needs a RandomScope around the micro-batch");
  // Micro-batches of a step get streams of their own: 64 random bits, so that none meets another's.
  const uint64_t own_stream = CounterRng(stream, place->micro_batch).bits(0);
  return ops::dropout_mask(x.sizes(), p, place->seed, own_stream, place->step, part.first, x.scalar_type(),
                           part.width);
}

}  // namespace tessera::nn
