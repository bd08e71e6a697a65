// Between our DType and LibTorch's ScalarType.
#pragma once

#include <c10/core/ScalarType.h>

#include "tessera/core/dtype.h"

namespace tessera {

at::ScalarType to_scalar_type(DType dtype);
// Throws Error(Internal) for a type that no file of ours stores (complex, quantised).
DType to_dtype(at::ScalarType type);

}  // namespace tessera
