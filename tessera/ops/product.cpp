#include "tessera/ops/product.h"

#include <algorithm>
#include <optional>

#include <ATen/ATen.h>

#include "tessera/device/host_memory.h"
#include "tessera/ops/coded_rows.h"
#include "tessera/ops/e4m3.h"
#include "tessera/ops/host.h"
#include "tessera/ops/kernels/gemm.h"
#include "tessera/ops/kernels/packed_gemm.h"
#include "tessera/ops/plain.h"
#include "tessera/ops/product_units.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

// A matrix as it lies in memory: by rows, or by columns, which are `stride` elements apart.
struct Stored {
  const at::Tensor* matrix;
  bool is_by_columns;
  int64_t stride;
  kernels::Transpose transpose() const {
    return is_by_columns ? kernels::Transpose::Yes : kernels::Transpose::No;
  }
};
// Returns how x lies in memory; empty if its elements lie apart in both directions. The stride of a dim of
// size 1 says nothing.
std::optional<Stored> stored(const at::Tensor& x) {
  const auto lies_along = [&](int64_t inner, int64_t outer) {
    return (x.size(inner) <= 1 || x.stride(inner) == 1) &&
           (x.size(outer) <= 1 || x.stride(outer) >= x.size(inner));
  };
  const auto stride = [&](int64_t inner, int64_t outer) {
    return std::max<int64_t>(x.size(outer) <= 1 ? x.size(inner) : x.stride(outer), 1);
  };
  if (lies_along(1, 0)) return Stored{&x, false, stride(1, 0)};
  if (lies_along(0, 1)) return Stored{&x, true, stride(0, 1)};
  return std::nullopt;
}

template <class T>
kernels::Factors<T> factors(const Stored& a, const Stored& b) {
  return {{read<T>(*a.matrix), a.stride, !a.is_by_columns},
          {read<T>(*b.matrix), b.stride, b.is_by_columns},
          a.matrix->size(1)};
}

// Multiplies by an own kernel; does nothing and returns false if none can do it, or the product is too small
// to gain.
template <class T, class Out>
bool multiply_packed(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, const MoreFactors& more,
                     bool adds) {
  const int64_t m = a.size(0), n = b.size(1), k = a.size(1);
  if (sum.stride(1) != 1) return false;
  const kernels::Units<T>* units = product_units<T>();
  if (units == nullptr || k < units->least_depth || m * n <= units->least_meetings * (m + n)) return false;
  const bool has_more = more.a.defined();
  const auto stored_a = stored(a), stored_b = stored(b);
  const auto more_a = has_more ? stored(more.a) : std::nullopt,
             more_b = has_more ? stored(more.b) : std::nullopt;
  if (!stored_a || !stored_b || (has_more && (!more_a || !more_b))) return false;
  kernels::packed_gemm(*units, m, n, factors<T>(*stored_a, *stored_b),
                       has_more ? factors<T>(*more_a, *more_b) : kernels::Factors<T>(), adds ? 1.0f : 0.0f,
                       write<Out>(sum), sum.stride(0));
  return true;
}

bool multiply_packed(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, const MoreFactors& more,
                     bool adds) {
  using kernels::Bf16, kernels::F16;
  const auto type = a.scalar_type(), sum_type = sum.scalar_type();
  if (type == at::kFloat && sum_type == at::kFloat)
    return multiply_packed<float, float>(sum, a, b, more, adds);
  if (type == at::kBFloat16 && sum_type == at::kFloat)
    return multiply_packed<Bf16, float>(sum, a, b, more, adds);
  if (type == at::kBFloat16 && sum_type == type) return multiply_packed<Bf16, Bf16>(sum, a, b, more, adds);
  if (type == at::kHalf && sum_type == at::kFloat) return multiply_packed<F16, float>(sum, a, b, more, adds);
  return type == at::kHalf && sum_type == type && multiply_packed<F16, F16>(sum, a, b, more, adds);
}

// Adds up a product of bf16 operands unrounded in a float32 sum.
void multiply_into_float(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, bool adds) {
  const at::Tensor left = stored(a) ? a : a.contiguous(), right = stored(b) ? b : b.contiguous();
  const Stored stored_a = *stored(left), stored_b = *stored(right);
  kernels::gemm(stored_a.transpose(), stored_b.transpose(), a.size(0), b.size(1), a.size(1),
                read<kernels::Bf16>(left), stored_a.stride, read<kernels::Bf16>(right), stored_b.stride,
                adds ? 1.0f : 0.0f, write<float>(sum), sum.stride(0));
}

void multiply_unpacked(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, bool adds) {
  if (a.scalar_type() == at::kBFloat16 && sum.scalar_type() == at::kFloat && sum.stride(1) == 1 &&
      sum.numel() > 0 && a.size(1) > 0) {
    multiply_into_float(sum, a, b, adds);
  } else {
    plain::multiply(sum, a, b, {}, adds);
  }
}

void check(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) {
  TESSERA_ASSERT(a.dim() == 2 && b.dim() == 2 && sum.dim() == 2 && a.size(1) == b.size(0) &&
                     sum.size(0) == a.size(0) && sum.size(1) == b.size(1) &&
                     a.scalar_type() == b.scalar_type(),
                 "operands of a product");
}

void multiply(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, const MoreFactors& more,
              bool adds) {
  check(sum, a, b);
  if (more.a.defined()) check(sum, more.a, more.b);
  if (!multiply_in_e4m3(sum, a, b, adds)) return leaves(sum).multiply(sum, a, b, more, adds);
  if (more.a.defined()) leaves(sum).multiply(sum, more.a, more.b, {}, /*adds=*/true);
}

// Multiplies by a coded weight by an own kernel; does nothing and returns false if none can do it.
template <class T, class Out>
bool multiply_coded(const at::Tensor& sum, const at::Tensor& a, const Weight& b, const MoreFactors& more,
                    bool adds) {
  const kernels::Units<T>* const units = product_units<T>();
  const auto stored_a = stored(a);
  const bool has_more = more.a.defined();
  const auto more_a = has_more ? stored(more.a) : std::nullopt,
             more_b = has_more ? stored(more.b) : std::nullopt;
  if (units == nullptr || sum.stride(1) != 1 || !stored_a || (has_more && (!more_a || !more_b))) return false;
  const kernels::CodedMatrix matrix = coded_matrix(b);
  kernels::Factors<T> product{{read<T>(a), stored_a->stride, !stored_a->is_by_columns},
                              {nullptr, 0, b.is_transposed()},
                              a.size(1),
                              &matrix};
  kernels::packed_gemm(*units, a.size(0), b.size(1), product,
                       has_more ? factors<T>(*more_a, *more_b) : kernels::Factors<T>(), adds ? 1.0f : 0.0f,
                       write<Out>(sum), sum.stride(0));
  return true;
}

bool multiply_coded(const at::Tensor& sum, const at::Tensor& a, const Weight& b, const MoreFactors& more,
                    bool adds) {
  using kernels::Bf16;
  if (!is_on_host(sum) || sum.numel() == 0 || a.size(1) == 0 || b.stored().stride(1) != 1) return false;
  const auto type = a.scalar_type();
  if (sum.scalar_type() != type) return false;
  if (type == at::kFloat) return multiply_coded<float, float>(sum, a, b, more, adds);
  return type == at::kBFloat16 && multiply_coded<Bf16, Bf16>(sum, a, b, more, adds);
}

// Multiplies by some rows of values after the other.
void multiply_by_rows(const at::Tensor& sum, const at::Tensor& a, const Weight& b, bool adds) {
  const int64_t num_rows = b.stored().size(0), step = b.rows_at_once();
  if (!b.is_transposed() && !adds) sum.zero_();
  for (int64_t first = 0; first < num_rows; first += step) {
    const int64_t count = std::min(step, num_rows - first);
    const at::Tensor rows = b.rows(first, count, a.scalar_type());
    if (!b.is_transposed()) {
      add_product(sum, a.narrow(1, first, count), rows);
    } else if (adds) {
      add_product(sum.narrow(1, first, count), a, rows.t());
    } else {
      product_out(sum.narrow(1, first, count), a, rows.t());
    }
  }
}

void multiply(const at::Tensor& sum, const at::Tensor& a, const Weight& b, const MoreFactors& more,
              bool adds) {
  if (!b.is_coded()) return multiply(sum, a, b.values(), more, adds);
  TESSERA_ASSERT(a.dim() == 2 && sum.dim() == 2 && a.size(1) == b.size(0) && sum.size(0) == a.size(0) &&
                     sum.size(1) == b.size(1),
                 "operands of a product with a coded weight");
  const ProductScope products(ProductType::OfOperands);
  if (multiply_coded(sum, a, b, more, adds)) return;
  if (at::isReducedFloatingType(a.scalar_type())) {
    // Sums over several parts of the depth are rounded once.
    const at::Tensor wide =
        adds ? sum.to(at::kFloat) : at::empty(sum.sizes(), sum.options().dtype(at::kFloat));
    MoreFactors wide_more;
    if (more.a.defined()) wide_more = {more.a.to(at::kFloat), more.b.to(at::kFloat)};
    multiply(wide, a.to(at::kFloat), b, wide_more, adds);
    sum.copy_(wide);
    return;
  }
  multiply_by_rows(sum, a, b, adds);
  if (more.a.defined()) add_product(sum, more.a, more.b);
}

}  // namespace

void host::multiply(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, const MoreFactors& more,
                    bool adds) {
  if (multiply_packed(sum, a, b, more, adds)) return;
  multiply_unpacked(sum, a, b, adds);
  if (more.a.defined()) multiply_unpacked(sum, more.a, more.b, true);
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b, const MoreFactors& more) {
  const at::Tensor result = at::empty({a.size(0), b.size(1)}, a.options());
  product_out(result, a, b, more);
  return result;
}

void add_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, const MoreFactors& more) {
  multiply(sum, a, b, more, true);
}

void product_out(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, const MoreFactors& more) {
  multiply(sum, a, b, more, false);
}

at::Tensor product(const at::Tensor& a, const Weight& b, const MoreFactors& more) {
  const at::Tensor result = at::empty({a.size(0), b.size(1)}, a.options());
  product_out(result, a, b, more);
  return result;
}

void add_product(const at::Tensor& sum, const at::Tensor& a, const Weight& b, const MoreFactors& more) {
  multiply(sum, a, b, more, true);
}

void product_out(const at::Tensor& sum, const at::Tensor& a, const Weight& b, const MoreFactors& more) {
  multiply(sum, a, b, more, false);
}

}  // namespace tessera::ops
