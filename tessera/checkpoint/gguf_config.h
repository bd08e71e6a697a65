// Makes the config.json that a GGUF file stands for.
#pragma once

#include <cstdint>

#include <nlohmann/json.hpp>

#include "tessera/checkpoint/gguf_architecture.h"
#include "tessera/io/gguf.h"

namespace tessera::checkpoint {

// The sizes that say how the file's tensors are read.
struct GgufShape {
  int64_t hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
};

// Reads the sizes. Throws Error(Model) for missing ones, for those that do not fit each other, and for heads
// that are not rotated whole.
GgufShape gguf_shape(const io::GgufFile& file, const GgufArchitecture& architecture);

// Returns config.json, with float32 as the type of the weights. Throws Error(Model) for missing keys, for
// numbers out of range, and for what config.json cannot express.
nlohmann::ordered_json gguf_config(const io::GgufFile& file, const GgufArchitecture& architecture,
                                   const GgufShape& shape);

}  // namespace tessera::checkpoint
