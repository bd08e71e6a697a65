#include "tessera/nn/random_scope.h"

#include <vector>

#include <ATen/ATen.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/rng.h"
#include "tessera/ops/counter_dropout.h"

namespace tessera::nn {

at::Tensor dropout_mask_here(const at::Tensor& x, double p, uint64_t stream, const RowPart& part) {
  const RandomPlace* place = RandomScope::current();
  TESSERA_CHECK_ARGUMENT(place != nullptr, "dropout in training needs a RandomScope around the micro-batch");
  // Micro-batches of a step get streams of their own: 64 random bits, so that none meets another's.
  const uint64_t own_stream = CounterRng(stream, place->micro_batch).bits(0);
  const int64_t width = part.width > 0 ? part.width : x.size(-1);
  std::vector<at::Tensor> masks;
  for (const TokenRun& run : place->part.value_or(std::vector<TokenRun>{{0, x.size(0)}})) {
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.front() = run.count;
    masks.push_back(ops::dropout_mask(sizes, p, place->seed, own_stream, place->step,
                                      run.first * width + part.first, x.options().requires_grad(false),
                                      part.width));
  }
  if (masks.size() == 1) return masks.front();
  const at::Tensor mask = masks.empty() ? at::empty_like(x) : at::cat(masks);
  TESSERA_CHECK_ARGUMENT(mask.sizes() == x.sizes(),
                         "dropout: the rows are those of the RandomScope's tokens");
  return mask;
}

}  // namespace tessera::nn
