#include "tessera/nn/random_scope.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/device.h"
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

at::Tensor embedding_noise_here(const at::Tensor& x, double alpha) {
  const RandomPlace* place = RandomScope::current();
  TESSERA_CHECK_ARGUMENT(place != nullptr, "noise in training needs a RandomScope around the micro-batch");
  const std::vector<int64_t>& starts = place->document_starts;
  TESSERA_CHECK_ARGUMENT(!starts.empty(), "noise: the RandomScope knows no documents");
  const at::NoGradGuard no_grad;
  const uint64_t stream = CounterRng(stream_of("embedding.noise"), place->micro_batch).bits(0);
  const int64_t width = x.size(1);
  const TokenRun whole{0, starts.back()};
  std::vector<at::Tensor> parts;
  std::vector<double> sizes;
  for (const TokenRun& run : place->part.value_or(std::vector<TokenRun>{whole})) {
    parts.push_back(ops::uniform_noise({run.count, width}, place->seed, stream, place->step,
                                       run.first * width, x.options().requires_grad(false)));
    for (int64_t token = run.first; token < run.first + run.count; ++token) {
      const auto end = std::upper_bound(starts.begin(), starts.end(), token);
      sizes.push_back(alpha / std::sqrt(static_cast<double>((*end - *(end - 1)) * width)));
    }
  }
  const at::Tensor noise = parts.empty() ? at::empty_like(x) : at::cat(parts);
  TESSERA_CHECK_ARGUMENT(noise.sizes() == x.sizes(), "noise: the rows are those of the RandomScope's tokens");
  return noise.mul_(at::tensor(sizes, on_host(at::kDouble)).to(x.options()).unsqueeze(1));
}

}  // namespace tessera::nn
