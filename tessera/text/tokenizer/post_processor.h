// The ids that the post-processor puts around one encoded text.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::text {

// Ids before and after the text; both are empty when the post-processor adds nothing.
struct PostProcessor {
  std::vector<int32_t> prefix, suffix;
};

}  // namespace tessera::text
