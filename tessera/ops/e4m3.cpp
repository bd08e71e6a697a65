#include "tessera/ops/e4m3.h"

#include "tessera/core/device.h"
#include "tessera/ops/leaf.h"

namespace tessera::ops {

ProductType product_type() {
  const ProductType* const type = ProductScope::current();
  return type == nullptr ? ProductType::OfOperands : *type;
}

bool multiply_in_e4m3(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, bool adds) {
  if (product_type() != ProductType::E4m3 || a.scalar_type() != at::kBFloat16) return false;
  if (sum.numel() == 0 || a.size(1) == 0 || sum.size(1) % kE4m3Depth != 0) return false;
  if (!sum.is_contiguous()) return false;
  const Leaves& table = leaves(sum);
  table.multiply_e4m3(sum, table.to_e4m3(a), table.to_e4m3(b.t()), adds);
  return true;
}

bool has_e4m3_units(at::Device device) { return has_capability(device, 8, 9); }

}  // namespace tessera::ops
