#include "tessera/ops/widened_linear.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/ops/product.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

// Weights that are widened at a time: a megabyte of float32, which stays in the cache between its two uses.
constexpr int64_t kBlock = int64_t{1} << 18;

}  // namespace

bool is_widened_linear(const at::Tensor& x, const Weight& weight) {
  return !weight.is_coded() && x.scalar_type() == at::kFloat &&
         weight.stored().scalar_type() == at::kBFloat16;
}

at::Tensor widened_linear(const at::Tensor& x, const at::Tensor& weight,
                          const std::optional<at::Tensor>& bias) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const int64_t in = weight.size(1), outs = weight.size(0);
  const at::Tensor rows = flatten_rows(x);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = outs;
  at::Tensor y = at::empty({rows.size(0), outs}, rows.options());
  const int64_t block = std::clamp<int64_t>(kBlock / std::max<int64_t>(in, 1), 1, std::max<int64_t>(outs, 1));
  const at::Tensor wide = at::empty({block, in}, rows.options());
  for (int64_t first = 0; first < outs; first += block) {
    const int64_t count = std::min(block, outs - first);
    const at::Tensor part = wide.narrow(0, 0, count).copy_(weight.narrow(0, first, count));
    product_out(y.narrow(1, first, count), rows, part.t());
  }
  if (bias) y.add_(bias->to(at::kFloat));
  return y.view(sizes);
}

}  // namespace tessera::ops
