#include "tessera/ops/layer_tiles.h"

#include <ATen/ATen.h>

#include "tessera/ops/support.h"

namespace tessera::ops {

LayerTiles::LayerTiles(const at::Tensor& x, const std::vector<LinearOperands>& layers, at::ScalarType stored,
                       int64_t tile)
    : tile_(tile), in_(x.size(-1)) {
  std::vector<int64_t> sizes = x.sizes().vec();
  for (const auto& [weight, bias] : layers) {
    sizes.back() = weight.size(0);
    results_.push_back(at::empty(sizes, x.options().requires_grad(false)));
    biases_.push_back(bias ? in_compute_type(*bias, stored) : at::Tensor());
    first_tiles_.push_back(first_tiles_.back() + (weight.size(0) + tile - 1) / tile);
  }
}

}  // namespace tessera::ops
