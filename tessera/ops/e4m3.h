// Products of bfloat16 operands in fp8: e4m3 numbers times one scale for each operand.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/device/carried_scope.h"

namespace tessera::ops {

// The type in which product.h multiplies operands of bfloat16.
enum class ProductType { OfOperands, E4m3 };

// While one lives, products take this type. The ops that make a layer's products keep the type of their
// forward for their backward. With E4m3 every call casts both operands of a product, each with a scale of its
// own, unless an E4m3OperandsScope holds the cast; a scale that is known is not computed again. Sums are in
// float32, and rounded once to the type of the result; a product that is added to a sum in memory is rounded
// once more, unless cuBLASLt adds it. E4m3 does not apply to operands of other types than bfloat16, to
// results whose width is no multiple of 16, and to the `more` factors of a product.
using ProductScope = CarriedScope<ProductType>;

// Returns the type of the scope in force, OfOperands if there is none.
ProductType product_type();

// A matrix [rows, depth] in e4m3: x = codes * scale, up to rounding.
struct E4m3Matrix {
  at::Tensor codes;  // [rows, depth rounded up to a multiple of kE4m3Depth, with zeros], e4m3 (finite), dense
  at::Tensor scale;  // a number in float32, on the device
};

// The depth of a product in e4m3, and the width of its result, are multiples of this.
inline constexpr int64_t kE4m3Depth = 16;
// The largest e4m3 number; and the least absolute maximum that a scale is made of, so that zeros do not
// divide by 0.
inline constexpr double kE4m3Max = 448.0, kE4m3LeastAbsmax = 1e-12;

// Notes `scale` as the scale of x as it is now: the one that to_e4m3 (leaf.h) finds for the same numbers, or
// that work enqueued on the current stream will have written. For activations and gradients, whose writes
// LibTorch counts: does nothing for leaves that train, because they are written past that count, for tensors
// of c10::InferenceMode, or if x or scale is undefined. An op that writes a tensor that it has not made
// itself has to count that (note_write()).
void keep_e4m3_scale(const at::Tensor& x, const at::Tensor& scale);
// Returns the scale last noted for x, or for the tensor of which x is a view with all elements in their
// order; undefined if there is none, or if LibTorch has counted a write to the tensor or to any view of it
// since then.
at::Tensor known_e4m3_scale(const at::Tensor& x);
// Counts a write to x that went past LibTorch, as LibTorch would have counted it.
void note_write(const at::Tensor& x);

// A matrix that several products read, with its casts: each is made once, when it is first asked for, and the
// casts of the matrix and of its transpose have one scale. Keeps the matrix and the casts alive; meanwhile
// nobody may write the matrix. Used by one thread.
class E4m3Operand {
 public:
  // `scale` is the matrix's scale if the caller knows it. If it is undefined, the scale that is noted for the
  // matrix is taken (known_e4m3_scale()), if there is one.
  explicit E4m3Operand(at::Tensor matrix, at::Tensor scale = {})
      : matrix_(std::move(matrix)), scale_(std::move(scale)) {}

  // Tells whether x is the matrix or its transpose: a view of the same memory.
  bool holds(const at::Tensor& x) const { return is_straight(x) || is_transposed(x); }
  // Returns the cast of x, made now if need be; null if the operand does not hold x.
  const E4m3Matrix* cast_of(const at::Tensor& x);
  // Returns the scale of the casts; undefined before the first cast, unless the caller gave it.
  const at::Tensor& scale() const { return scale_; }

 private:
  bool is_straight(const at::Tensor& x) const;
  bool is_transposed(const at::Tensor& x) const;

  at::Tensor matrix_, scale_;
  E4m3Matrix straight_, transposed_;
};

// While one lives, products in e4m3 take the casts of these operands, and of those of enclosing scopes, which
// take precedence. Does nothing if `type` is not E4m3.
class E4m3OperandsScope {
 public:
  E4m3OperandsScope(ProductType type, std::initializer_list<E4m3Operand*> operands);

  // Returns the operand in force that holds x, or null.
  static E4m3Operand* holding(const at::Tensor& x);

 private:
  std::optional<CarriedScope<std::vector<E4m3Operand*>>> scope_;
};

// Makes the product in e4m3, sum = a b or, with `adds`, sum += a b, if the scope in force asks for that and
// the operands allow it; otherwise does nothing and returns false. Operands are those of product.h, apart
// from `more`.
bool multiply_in_e4m3(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, bool adds);

// Tells whether the device has units for e4m3 that LibTorch uses: compute capability 8.9 and later. On other
// devices the same numbers come from products in bfloat16, which holds e4m3 exactly, and nothing is gained.
bool has_e4m3_units(at::Device device);

}  // namespace tessera::ops
