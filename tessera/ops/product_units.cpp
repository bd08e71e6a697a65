#include "tessera/ops/product_units.h"

#include "tessera/core/environment.h"

namespace tessera::ops {

template <class T>
const kernels::Units<T>* product_units() {
  static const kernels::Units<T>* const chosen =
      environment::get("TESSERA_PRODUCTS") == "libtorch" ? nullptr : kernels::units<T>();
  return chosen;
}
template const kernels::Units<float>* product_units<float>();
template const kernels::Units<kernels::Bf16>* product_units<kernels::Bf16>();
template const kernels::Units<kernels::F16>* product_units<kernels::F16>();

bool has_bf16_units() {
  const auto* units = product_units<kernels::Bf16>();
  return units != nullptr && units->block_bytes == kernels::kBlockBytes<kernels::Bf16>;
}

}  // namespace tessera::ops
