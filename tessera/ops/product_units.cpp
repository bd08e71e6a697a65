#include "tessera/ops/product_units.h"

#include <cstdlib>
#include <string>

#include "tessera/core/error.h"

namespace tessera::ops {
namespace {

bool leaves_products_to_libtorch() {
  const char* text = std::getenv("TESSERA_PRODUCTS");
  const std::string value = text == nullptr ? "" : text;
  if (value.empty() || value == "own") return false;
  if (value == "libtorch") return true;
  throw Error(ErrorKind::Config, "PRODUCTS", "TESSERA_PRODUCTS names no way to multiply")
      .got(value)
      .need("own or libtorch");
}

}  // namespace

template <class T>
const kernels::Units<T>* product_units() {
  static const kernels::Units<T>* const chosen =
      leaves_products_to_libtorch() ? nullptr : kernels::units<T>();
  return chosen;
}
template const kernels::Units<float>* product_units<float>();
template const kernels::Units<kernels::Bf16>* product_units<kernels::Bf16>();

}  // namespace tessera::ops
