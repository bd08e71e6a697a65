// Layers over one input of a few rows, whose weights the threads share in tiles of rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include "tessera/core/shared_range.h"
#include "tessera/ops/small_linear.h"

namespace tessera::ops {

class LayerTiles {
 public:
  // x: [..., in]. Makes a result for each layer, [..., out] in x's type, and takes over the biases in the
  // type that weights of type `stored` compute in. A tile is `tile` rows of a weight.
  LayerTiles(const at::Tensor& x, const std::vector<LinearOperands>& layers, at::ScalarType stored,
             int64_t tile);

  const std::vector<at::Tensor>& results() const { return results_; }
  // Returns the bias of layer `i`; undefined if it has none.
  const at::Tensor& bias(size_t i) const { return biases_[i]; }

  // Shares the tiles of all layers among the threads. Each thread calls make() once, and what that returns
  // with (i, first, last) for rows [first, last) of the weight of layer i that are its own, which begin with
  // a tile.
  template <class Make>
  void for_each(const Make& make) const {
    const int64_t tiles = first_tiles_.back();
    const int64_t most = at::in_parallel_region() ? 1 : at::get_num_threads();
    const int64_t threads = std::clamp<int64_t>(tiles * tile_ * in_ / kMinWeights, 1, most);
    SharedRange shared(0, tiles, threads, tiles);
    at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
      auto run = make();
      for (auto own = shared.take(); !own.is_empty(); own = shared.take()) {
        for (size_t i = 0; i < results_.size(); ++i) {
          const int64_t first = (std::max(own.begin, first_tiles_[i]) - first_tiles_[i]) * tile_;
          const int64_t last = std::min((std::min(own.end, first_tiles_[i + 1]) - first_tiles_[i]) * tile_,
                                        results_[i].size(-1));
          if (first < last) run(i, first, last);
        }
      }
    });
  }

 private:
  // The number of weights that is worth a thread of its own.
  static constexpr int64_t kMinWeights = 32768;

  int64_t tile_, in_;
  std::vector<at::Tensor> results_, biases_;
  std::vector<int64_t> first_tiles_ = {0};  // number of each layer's first tile, and that of all tiles
};

}  // namespace tessera::ops
