// The memory of tensors that lie on the host.
#pragma once

#include <span>
#include <type_traits>

#include <ATen/core/Tensor.h>

#include "tessera/core/error.h"
#include "tessera/device/device.h"

namespace tessera {

inline bool is_on_host(const at::Tensor& x) { return x.device().type() == kHost; }

// Gives the elements of a dense tensor on the host; T is its element type, or char for its bytes. Throws
// Error(Internal) for a tensor elsewhere or of another type.
template <class T>
std::span<T> host_span(const at::Tensor& x) {
  TESSERA_ASSERT(is_on_host(x) && x.is_contiguous(), "a dense tensor on the host");
  if constexpr (sizeof(T) > 1) {
    TESSERA_ASSERT(x.scalar_type() == c10::CppTypeToScalarType<std::remove_const_t<T>>::value,
                   "a tensor of this type");
  }
  T* data = nullptr;
  if constexpr (std::is_const_v<T>) {
    data = static_cast<T*>(x.const_data_ptr());
  } else {
    data = static_cast<T*>(x.mutable_data_ptr());
  }
  return {data, x.nbytes() / sizeof(T)};
}

}  // namespace tessera
