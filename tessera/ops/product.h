// Matrix products of tensors, on the fastest path that this processor has for them.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::ops {

// A second product to be added to a first one of the same shape and type: few columns of a and rows of b.
struct MoreFactors {
  at::Tensor a, b;  // undefined: none
};

// a b + more.a more.b for a: [m, k], b: [k, n] of one type, transposed views among them; the result is dense,
// of that type. Large products of float32 and bfloat16 run on own kernels (kernels/packed_gemm.h) where
// these are the faster ones here (product_units.h), and then do not depend on the number of threads; the
// others in LibTorch. Those of bfloat16 are made in fp8 where a scope asks for that (e4m3.h). Without
// autograd.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, const MoreFactors& more = {});

// sum += the same, or sum = the same without reading it; sum: [m, n]. `sum` may have another type: products
// of bfloat16 are added up unrounded in a float32 one.
void add_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b,
                 const MoreFactors& more = {});
void product_out(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b,
                 const MoreFactors& more = {});

}  // namespace tessera::ops
