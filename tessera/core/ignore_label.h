// Labels of tokens.
#pragma once

#include <cstdint>

namespace tessera {

// The label of a position that is not trained, as in PyTorch and Transformers.
inline constexpr int64_t kIgnoreLabel = -100;

}  // namespace tessera
