#include "tessera/ops/product.h"

#include <algorithm>
#include <optional>

#include <ATen/ATen.h>

#include "tessera/ops/kernels/gemm.h"
#include "tessera/ops/kernels/tile_gemm.h"
#include "tessera/ops/kernels/tile_multiply.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using kernels::Lines;

// How a product is stored for the kernels: whether op(X) is X as it lies in memory, and the elements between
// its rows. Empty if neither dimension is dense.
struct Stored {
  bool is_transposed;
  int64_t stride;
};
std::optional<Stored> stored(const at::Tensor& x) {
  if (x.stride(1) == 1 && x.stride(0) >= x.size(1)) return Stored{false, x.stride(0)};
  if (x.stride(0) == 1 && x.stride(1) >= x.size(0)) return Stored{true, x.stride(1)};
  return std::nullopt;
}

// Whether packing the operands pays: it costs m + n lines and saves time on m n sums.
bool is_large(int64_t m, int64_t n, int64_t k) { return k >= 32 && m * n >= 64 * (m + n); }

template <class T, class Out>
void multiply_tiles(const at::Tensor& sum, const at::Tensor& a, const Stored& stored_a, const at::Tensor& b,
                    const Stored& stored_b, bool adds) {
  kernels::tile_gemm(a.size(0), b.size(1), a.size(1),
                     Lines<T>{read<T>(a), stored_a.stride, !stored_a.is_transposed},
                     Lines<T>{read<T>(b), stored_b.stride, stored_b.is_transposed}, adds ? 1.0f : 0.0f,
                     write<Out>(sum), sum.stride(0));
}

// False where the tile units cannot, or need not, do it.
bool multiply_on_tiles(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, bool adds) {
  const auto type = a.scalar_type(), sum_type = sum.scalar_type();
  if ((type != at::kFloat && type != at::kBFloat16) || !is_large(a.size(0), b.size(1), a.size(1)))
    return false;
  if (!kernels::has_tiles() || sum.stride(1) != 1) return false;
  const auto stored_a = stored(a), stored_b = stored(b);
  if (!stored_a || !stored_b) return false;
  if (type == at::kFloat) {
    multiply_tiles<float, float>(sum, a, *stored_a, b, *stored_b, adds);
  } else if (sum_type == at::kFloat) {
    multiply_tiles<kernels::Bf16, float>(sum, a, *stored_a, b, *stored_b, adds);
  } else {
    multiply_tiles<kernels::Bf16, kernels::Bf16>(sum, a, *stored_a, b, *stored_b, adds);
  }
  return true;
}

// bf16 operands and a float32 sum, without tile units.
void multiply_into_float(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, bool adds) {
  const at::Tensor left = stored(a) ? a : a.contiguous(), right = stored(b) ? b : b.contiguous();
  const Stored stored_a = *stored(left), stored_b = *stored(right);
  const auto transpose = [](const Stored& x) {
    return x.is_transposed ? kernels::Transpose::Yes : kernels::Transpose::No;
  };
  kernels::gemm(transpose(stored_a), transpose(stored_b), a.size(0), b.size(1), a.size(1),
                read<kernels::Bf16>(left), stored_a.stride, read<kernels::Bf16>(right), stored_b.stride,
                adds ? 1.0f : 0.0f, write<float>(sum), sum.stride(0));
}

void multiply(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, bool adds) {
  TESSERA_ASSERT(a.dim() == 2 && b.dim() == 2 && sum.dim() == 2 && a.size(1) == b.size(0) &&
                     sum.size(0) == a.size(0) && sum.size(1) == b.size(1) &&
                     a.scalar_type() == b.scalar_type(),
                 "operands of a product");
  if (multiply_on_tiles(sum, a, b, adds)) return;
  at::Tensor target = sum;
  if (sum.scalar_type() == a.scalar_type()) {
    if (adds) {
      target.addmm_(a, b);
    } else {
      at::mm_out(target, a, b);
    }
  } else if (a.scalar_type() == at::kBFloat16 && sum.scalar_type() == at::kFloat && sum.is_contiguous() &&
             sum.numel() > 0 && a.size(1) > 0) {
    multiply_into_float(sum, a, b, adds);
  } else if (adds) {
    target.add_(at::mm(a, b));
  } else {
    target.copy_(at::mm(a, b));
  }
}

}  // namespace

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor result = at::empty({a.size(0), b.size(1)}, a.options());
  product_out(result, a, b);
  return result;
}

void add_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) {
  multiply(sum, a, b, true);
}

void product_out(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) {
  multiply(sum, a, b, false);
}

}  // namespace tessera::ops
