// The names of the types of weights that a verb's --dtype takes.
#pragma once

#include <optional>
#include <string>

#include "tessera/core/dtype.h"

namespace tessera::cli {

// Returns the type of a folder's weights that a name stands for ("bf16", "bfloat16", ..., in letters of any
// case); nothing for another name.
std::optional<DType> find_weight_dtype(std::string name);

}  // namespace tessera::cli
