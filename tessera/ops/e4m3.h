// Products of bfloat16 operands in fp8: e4m3 numbers times one scale for each operand.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/core/carried_scope.h"

namespace tessera::ops {

// In what type product.h multiplies operands of bfloat16.
enum class ProductType { OfOperands, E4m3 };

// While one lives, products take this type. The ops whose products are a layer's keep the type of their
// forward for their backward. With E4m3 a product's two operands are both cast, with scales of their own, in
// every call, but for those that an E4m3OperandsScope holds and for known scales; sums are in float32, and
// rounded once to the type of the result. What is added to that already stands there is rounded once more,
// but where cuBLASLt adds it. Where products are not made so: other types than bfloat16, results whose width
// is no multiple of 16, and the `more` factors of a product.
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

// Says that this is the scale of x as it is now: what to_e4m3 (leaf.h) finds for the same numbers, or what is
// enqueued on the current stream will have made it. For activations and gradients, of which LibTorch counts
// the writes: it does nothing for leaves that train, which are written behind its back, nor for tensors of
// c10::InferenceMode, nor where x or the scale is undefined. An op that writes a tensor that it has not made
// itself has to count that (note_write()).
void keep_e4m3_scale(const at::Tensor& x, const at::Tensor& scale);
// What was said last of x, or of the tensor of which it is a view with all elements in their order; undefined
// where nothing was, and where LibTorch has counted a write, to the tensor or to any view of it, since then.
at::Tensor known_e4m3_scale(const at::Tensor& x);
// Counts a write to x that goes past LibTorch, as one of LibTorch's.
void note_write(const at::Tensor& x);

// A matrix that several products read, with its casts: each is made once, when it is asked for, and both ways
// of reading it have one scale. It keeps matrix and casts alive; meanwhile nobody may write the matrix. Used
// by one thread.
class E4m3Operand {
 public:
  // scale: where it is known to the caller; else, where it is known of the matrix, it is that.
  explicit E4m3Operand(at::Tensor matrix, at::Tensor scale = {})
      : matrix_(std::move(matrix)), scale_(std::move(scale)) {}

  // Whether x is the matrix or its transpose: the same memory, read so.
  bool holds(const at::Tensor& x) const { return is_straight(x) || is_transposed(x); }
  // Of x, if it is held. Null for another one.
  const E4m3Matrix* cast_of(const at::Tensor& x);
  // That of the casts; undefined before the first, where the caller did not know it.
  const at::Tensor& scale() const { return scale_; }

 private:
  bool is_straight(const at::Tensor& x) const;
  bool is_transposed(const at::Tensor& x) const;

  at::Tensor matrix_, scale_;
  E4m3Matrix straight_, transposed_;
};

// While one lives, products in e4m3 take the casts of these operands, and of those of the scopes around it,
// which come first. Does nothing where `type` is another.
class E4m3OperandsScope {
 public:
  E4m3OperandsScope(ProductType type, std::initializer_list<E4m3Operand*> operands);

  // The operand in force that holds x, or null.
  static E4m3Operand* holding(const at::Tensor& x);

 private:
  std::optional<CarriedScope<std::vector<E4m3Operand*>>> scope_;
};

// Makes the product in e4m3, sum = a b or sum += a b, if the scope in force asks for that and the operands
// can; false where nothing was done. As product.h's, without `more`.
bool multiply_in_e4m3(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, bool adds);

// Whether that device has units for e4m3 that LibTorch uses: compute capability 8.9 and later. Elsewhere the
// same numbers come from products in bfloat16, which holds e4m3 exactly, and nothing is gained.
bool has_e4m3_units(at::Device device);

}  // namespace tessera::ops
