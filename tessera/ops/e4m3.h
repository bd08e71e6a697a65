// Products of bfloat16 operands in fp8: e4m3 numbers times one scale for each operand.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/core/carried_scope.h"

namespace tessera::ops {

// In what type product.h multiplies operands of bfloat16.
enum class ProductType { OfOperands, E4m3 };

// While one lives, products take this type. The ops whose products are a layer's keep the type of their
// forward for their backward. With E4m3 a product's two operands are both cast, with scales of their own, in
// every call, but for those that an E4m3OperandsScope holds; sums are in float32, and rounded once to the
// type of the result. What is added to that already stands there is rounded once more, but where cuBLASLt
// adds it. Where products are not made so: other types than bfloat16, results whose width is no multiple of
// 16, and the `more` factors of a product.
using ProductScope = CarriedScope<ProductType>;

ProductType product_type();

// A matrix [rows, depth]: x = codes * scale, but for rounding.
struct E4m3Matrix {
  at::Tensor codes;  // [rows, depth rounded up to a multiple of kE4m3Depth, with zeros], e4m3 (finite), dense
  at::Tensor scale;  // a number in float32, on the device
};

inline constexpr int64_t kE4m3Depth = 16;
// The largest e4m3 number, and the least absmax that is divided by.
inline constexpr double kE4m3Max = 448.0, kE4m3LeastAbsmax = 1e-12;

// A matrix that several products read, with its casts: each is made once, when it is asked for, and both ways
// of reading it have one absmax. It keeps matrix and casts alive; meanwhile nobody may write the matrix. Used
// by one thread.
class E4m3Operand {
 public:
  explicit E4m3Operand(at::Tensor matrix) : matrix_(std::move(matrix)) {}

  // Of x, if it is the matrix or its transpose: the same memory, read so. Null for another one.
  const E4m3Matrix* cast_of(const at::Tensor& x);

 private:
  at::Tensor matrix_, scale_;
  E4m3Matrix straight_, transposed_;
};

// While one lives, products in e4m3 take the casts of these operands.
using E4m3OperandsScope = CarriedScope<std::vector<E4m3Operand*>>;

// Makes the product in e4m3, sum = a b or sum += a b, if the scope in force asks for that and the operands
// can; false where nothing was done. As product.h's, without `more`.
bool multiply_in_e4m3(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, bool adds);

// Whether that device has units for e4m3 that LibTorch uses: compute capability 8.9 and later. Elsewhere the
// same numbers come from products in bfloat16, which holds e4m3 exactly, and nothing is gained.
bool has_e4m3_units(at::Device device);

}  // namespace tessera::ops
