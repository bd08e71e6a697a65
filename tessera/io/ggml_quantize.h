// Quantisation of float32 to ggml's block formats, with the numbers of llama.cpp's reference quantisers.
#pragma once

#include <cstdint>

#include "tessera/io/ggml_quants.h"

namespace tessera::io {

// Writes num_blocks * ggml_block_elements(type) values, which must be finite, as that many blocks of type
// F32, F16, BF16, Q4_0, Q5_0, Q8_0, Q4_K or Q6_K. Throws Error(Internal) for another type.
void quantize_ggml(GgmlType type, const float* values, int64_t num_blocks, void* blocks);

}  // namespace tessera::io
