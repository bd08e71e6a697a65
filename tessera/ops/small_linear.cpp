#include "tessera/ops/small_linear.h"

#include <algorithm>
#include <type_traits>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "tessera/ops/coded_rows.h"
#include "tessera/ops/host.h"
#include "tessera/ops/layer_tiles.h"
#include "tessera/ops/panel_linear.h"
#include "tessera/ops/support.h"
#include "tessera/ops/widened_linear.h"

namespace tessera::ops {
namespace {

// Threads get rows of the weight in tiles of this many, so that the kernel's own tiles, and with them the
// order of its sums, are the same for any number of threads.
constexpr int64_t kTile = 4;

// Multiplies x by all layers, over all threads. W and Y: the types of the weights and of the results.
template <class W, class Y>
void multiply_few(const at::Tensor& x, const std::vector<LinearOperands>& layers, const LayerTiles& tiles) {
  using C = kernels::ComputeType<W>;
  const C* from = read<C>(x);
  const int64_t in = x.size(-1), rows = x.numel() / in;
  tiles.for_each([&] {
    return [&, scratch = std::vector<C>(static_cast<size_t>(std::is_same_v<W, C> ? 0 : kTile * in)),
            expanded = std::vector<W>()](size_t i, int64_t first, int64_t last) mutable {
      const Weight& weight = layers[i].weight;
      const auto multiply = [&](const W* values, int64_t at, int64_t count) {
        kernels::small_linear(from, values, tiles.bias(i).defined() ? read<C>(tiles.bias(i)) + at : nullptr,
                              write<Y>(tiles.results()[i]) + at, rows, in, count, weight.size(0),
                              scratch.data());
      };
      if (!weight.is_coded()) return multiply(read<W>(weight.values()) + first * in, first, last - first);
      if constexpr (!std::is_same_v<W, double>) {
        const kernels::CodedMatrix coded = coded_matrix(weight);
        expanded.resize(static_cast<size_t>(kTile * in));
        for (int64_t at = first; at < last; at += kTile) {
          const int64_t count = std::min(kTile, last - at);
          read_coded_rows(coded, at, count, in, expanded.data());
          multiply(expanded.data(), at, count);
        }
      }
    };
  });
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
  for (const LinearOperands& layer : layers) {
    const Weight& weight = layer.weight;
    TESSERA_ASSERT(weight.is_coded() == are_coded && (are_coded || weight.values().scalar_type() == type) &&
                       (x_in.scalar_type() == type || is_widened_linear(x_in, weight)) &&
                       weight.size(1) == in,
                   "small_linears: types or shapes");
  }
  const LayerTiles tiles(x_in, layers, type, kTile);
  if (rows == 0) return tiles.results();
  dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    if (x_in.scalar_type() == type) {
      multiply_few<T, T>(x, layers, tiles);
    } else {
      multiply_few<T, kernels::ComputeType<T>>(x, layers, tiles);
    }
  });
  return tiles.results();
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
