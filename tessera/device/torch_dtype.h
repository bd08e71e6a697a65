// Converts between our DType and LibTorch's ScalarType.
#pragma once

#include <optional>

#include <c10/core/ScalarType.h>

#include "tessera/core/dtype.h"

namespace tessera {

at::ScalarType to_scalar_type(DType dtype);
// Gives nothing for a type that no file of ours stores (complex, quantised).
std::optional<DType> find_dtype(at::ScalarType type);
// Throws Error(Internal) for such a type.
DType to_dtype(at::ScalarType type);

}  // namespace tessera
