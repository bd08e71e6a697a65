// Matrix products of tensors, on the fastest path that the device has for them.
#pragma once

#include <ATen/core/Tensor.h>

#include "tessera/ops/weight.h"

namespace tessera::ops {

// A second product that is added to a first one of the same shape and type; a has few columns, and b as many
// rows.
struct MoreFactors {
  at::Tensor a, b;  // both undefined: no second product
};

// Returns a b + more.a more.b for a: [m, k], b: [k, n] of one type, which may be transposed views; the result
// is dense, [m, n] of that type. On the host, large products of float32 and bfloat16 run on own kernels
// (kernels/packed_gemm.h) if product_units.h finds that these are the faster ones, and then do not depend on
// the number of threads; the others run in LibTorch. Products of bfloat16 are made in fp8 if a scope asks for
// that (e4m3.h). Without autograd.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, const MoreFactors& more = {});

// add_product() adds product() to `sum`, [m, n]; product_out() writes it there without reading `sum`. `sum`
// may have another type: products of bfloat16 are added up unrounded in a float32 one.
void add_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b,
                 const MoreFactors& more = {});
void product_out(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b,
                 const MoreFactors& more = {});

// These do the same with a weight, which may be coded: its values, in a's type, are expanded on their way
// into the product. Coded weights know no fp8.
at::Tensor product(const at::Tensor& a, const Weight& b, const MoreFactors& more = {});
void add_product(const at::Tensor& sum, const at::Tensor& a, const Weight& b, const MoreFactors& more = {});
void product_out(const at::Tensor& sum, const at::Tensor& a, const Weight& b, const MoreFactors& more = {});

}  // namespace tessera::ops
