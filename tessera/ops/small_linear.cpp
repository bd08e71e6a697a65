#include "tessera/ops/small_linear.h"

#include <algorithm>
#include <type_traits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include "tessera/ops/host.h"
#include "tessera/ops/kernels/coded_matrix.h"
#include "tessera/ops/panel_linear.h"
#include "tessera/ops/support.h"
#include "tessera/ops/widened_linear.h"

namespace tessera::ops {
namespace {

// Threads get rows of the weight in tiles of this many, so that the kernel's own tiles, and with them the
// order of its sums, are the same for any number of threads.
constexpr int64_t kTile = 4;
// The number of weights that is worth a thread of its own.
constexpr int64_t kMinWeights = 32768;

// Gives the kernel four rows of a layer's weight at a time.
template <class W>
class WeightRows {
 public:
  explicit WeightRows(const Weight& weight) : in_(weight.size(1)) {
    if (weight.is_coded()) {
      coded_ = {*weight.form(), read<uint8_t>(weight.stored()), weight.stored().stride(0)};
    } else {
      values_ = read<W>(weight.values());
    }
  }
  bool is_coded() const { return values_ == nullptr; }
  const W* values(int64_t row) const { return values_ + row * in_; }
  // Expands rows [first, first + count) of a coded weight.
  void expand(int64_t first, int64_t count, W* to) const {
    if constexpr (!std::is_same_v<W, double>) {
      for (int64_t i = 0; i < count; ++i) kernels::read_coded_row(coded_, first + i, 0, in_, to + i * in_);
    }
  }

 private:
  int64_t in_;
  const W* values_ = nullptr;
  kernels::CodedMatrix coded_;
};

// Multiplies x by all layers, over all threads. W and Y: the types of the weights and of the results.
// first_tiles: the number of each layer's first tile, and that of all tiles.
template <class W, class Y>
void multiply_few(const at::Tensor& x, const std::vector<LinearOperands>& layers,
                  const std::vector<at::Tensor>& biases, const std::vector<at::Tensor>& results,
                  const std::vector<int64_t>& first_tiles) {
  using C = kernels::ComputeType<W>;
  const C* from = read<C>(x);
  const int64_t in = x.size(-1), rows = x.numel() / in;
  const auto run = [&](int64_t begin, int64_t end) {
    std::vector<C> scratch(static_cast<size_t>(std::is_same_v<W, C> ? 0 : kTile * in));
    std::vector<W> expanded;
    for (size_t i = 0; i < layers.size(); ++i) {
      const int64_t outs = layers[i].weight.size(0);
      const int64_t first = (std::max(begin, first_tiles[i]) - first_tiles[i]) * kTile;
      const int64_t last = std::min((std::min(end, first_tiles[i + 1]) - first_tiles[i]) * kTile, outs);
      if (first >= last) continue;
      const WeightRows<W> weight(layers[i].weight);
      const auto multiply = [&](const W* values, int64_t at, int64_t count) {
        kernels::small_linear(from, values, biases[i].defined() ? read<C>(biases[i]) + at : nullptr,
                              write<Y>(results[i]) + at, rows, in, count, outs, scratch.data());
      };
      if (!weight.is_coded()) {
        multiply(weight.values(first), first, last - first);
        continue;
      }
      expanded.resize(static_cast<size_t>(kTile * in));
      for (int64_t at = first; at < last; at += kTile) {
        const int64_t count = std::min(kTile, last - at);
        weight.expand(at, count, expanded.data());
        multiply(expanded.data(), at, count);
      }
    }
  };
  at::parallel_for(0, first_tiles.back(), std::max<int64_t>(1, kMinWeights / (kTile * in)), run);
}

}  // namespace

bool is_small_linear(const at::Tensor& x, const Weight& weight) {
  if (!c10::InferenceMode::is_enabled() || leaves(x).small_linears == nullptr) return false;
  const int64_t in = weight.size(1);
  if (weight.is_coded() && x.scalar_type() != at::kFloat && x.scalar_type() != at::kBFloat16) return false;
  const bool is_small = in > 0 && x.numel() <= kSmallLinearRows * in && weight.stored().is_contiguous();
  return is_small || is_panel_linear(x, weight);
}

std::vector<at::Tensor> host::small_linears(const at::Tensor& x_in,
                                            const std::vector<LinearOperands>& layers) {
  TESSERA_ASSERT(!layers.empty(), "small_linears: no layer");
  if (is_panel_linear(x_in, layers.front().weight)) return panel_linears(x_in, layers);
  const bool are_coded = layers.front().weight.is_coded();
  const at::ScalarType type = are_coded ? x_in.scalar_type() : layers.front().weight.values().scalar_type();
  const int64_t in = layers.front().weight.size(1), rows = x_in.numel() / in;
  const at::Tensor x = in_compute_type(x_in, type);
  std::vector<int64_t> sizes = x_in.sizes().vec();
  std::vector<at::Tensor> results, biases;
  std::vector<int64_t> first_tiles = {0};
  for (const auto& [weight, bias] : layers) {
    TESSERA_ASSERT(weight.is_coded() == are_coded && (are_coded || weight.values().scalar_type() == type) &&
                       (x_in.scalar_type() == type || is_widened_linear(x_in, weight)) &&
                       weight.size(1) == in,
                   "small_linears: types or shapes");
    sizes.back() = weight.size(0);
    results.push_back(at::empty(sizes, x_in.options().requires_grad(false)));
    biases.push_back(bias ? in_compute_type(*bias, type) : at::Tensor());
    first_tiles.push_back(first_tiles.back() + (weight.size(0) + kTile - 1) / kTile);
  }
  if (rows == 0) return results;
  dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    if (x_in.scalar_type() == type) {
      multiply_few<T, T>(x, layers, biases, results, first_tiles);
    } else {
      multiply_few<T, kernels::ComputeType<T>>(x, layers, biases, results, first_tiles);
    }
  });
  return results;
}

std::vector<at::Tensor> small_linears(const at::Tensor& x, const std::vector<LinearOperands>& layers) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto leaf = leaves(x).small_linears;
  TESSERA_ASSERT(leaf != nullptr, "small_linears: not where is_small_linear() says no");
  return leaf(x, layers);
}

at::Tensor small_linear(const at::Tensor& x, const Weight& weight, const std::optional<at::Tensor>& bias) {
  return small_linears(x, {{weight, bias}}).front();
}

}  // namespace tessera::ops
