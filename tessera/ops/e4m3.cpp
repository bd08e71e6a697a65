#include "tessera/ops/e4m3.h"

#include "tessera/core/device.h"
#include "tessera/ops/leaf.h"

namespace tessera::ops {

ProductType product_type() {
  const ProductType* const type = ProductScope::current();
  return type == nullptr ? ProductType::OfOperands : *type;
}

const E4m3Matrix* E4m3Operand::cast_of(const at::Tensor& x) {
  const auto is = [&](const at::Tensor& matrix) {
    return x.const_data_ptr() == matrix.const_data_ptr() && x.sizes() == matrix.sizes() &&
           x.strides() == matrix.strides() && x.scalar_type() == matrix.scalar_type();
  };
  const bool is_straight = is(matrix_);
  if (!is_straight && !is(matrix_.t())) return nullptr;
  E4m3Matrix& made = is_straight ? straight_ : transposed_;
  if (!made.codes.defined()) {
    made = leaves(x).to_e4m3(x, scale_);
    scale_ = made.scale;
  }
  return &made;
}

namespace {

E4m3Matrix cast(const Leaves& table, const at::Tensor& x) {
  if (const auto* operands = E4m3OperandsScope::current()) {
    for (E4m3Operand* operand : *operands) {
      if (const E4m3Matrix* made = operand->cast_of(x)) return *made;
    }
  }
  return table.to_e4m3(x, /*scale=*/{});
}

}  // namespace

bool multiply_in_e4m3(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, bool adds) {
  if (product_type() != ProductType::E4m3 || a.scalar_type() != at::kBFloat16) return false;
  if (sum.numel() == 0 || a.size(1) == 0 || sum.size(1) % kE4m3Depth != 0) return false;
  if (!sum.is_contiguous()) return false;
  const Leaves& table = leaves(sum);
  table.multiply_e4m3(sum, cast(table, a), cast(table, b.t()), adds);
  return true;
}

bool has_e4m3_units(at::Device device) { return has_capability(device, 8, 9); }

}  // namespace tessera::ops
