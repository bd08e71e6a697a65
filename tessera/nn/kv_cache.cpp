#include "tessera/nn/kv_cache.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "tessera/core/error.h"

namespace tessera::nn {
namespace {

at::Tensor grown(const at::Tensor& buffer, int64_t used, int64_t rows, const at::Tensor& like) {
  at::Tensor wider = at::empty({rows, like.size(1), like.size(2)}, like.options());
  if (used > 0) wider.narrow(0, 0, used).copy_(buffer.narrow(0, 0, used));
  return wider;
}

}  // namespace

KvCache::KvCache(int64_t num_layers, int64_t capacity)
    : layers_(static_cast<size_t>(num_layers)), capacity_(capacity) {}

std::pair<at::Tensor, at::Tensor> KvCache::append(int64_t layer, const at::Tensor& k, const at::Tensor& v) {
  TESSERA_ASSERT(layer >= 0 && layer < num_layers(), "layer of the cache");
  at::NoGradGuard no_grad;
  Layer& part = layers_[static_cast<size_t>(layer)];
  const int64_t total = part.used + k.size(0);
  const int64_t rows = part.keys.defined() ? part.keys.size(0) : 0;
  if (total > rows) {
    const int64_t wanted = std::max({total, 2 * rows, capacity_});
    part.keys = grown(part.keys, part.used, wanted, k);
    part.values = grown(part.values, part.used, wanted, v);
  }
  part.keys.narrow(0, part.used, k.size(0)).copy_(k);
  part.values.narrow(0, part.used, v.size(0)).copy_(v);
  part.used = total;
  return {part.keys.narrow(0, 0, total), part.values.narrow(0, 0, total)};
}

int64_t KvCache::length() const {
  int64_t length = layers_.empty() ? 0 : layers_.front().used;
  for (const Layer& layer : layers_) length = std::min(length, layer.used);
  return length;
}

void KvCache::truncate(int64_t length) {
  for (Layer& layer : layers_) layer.used = std::min(layer.used, length);
}

}  // namespace tessera::nn
