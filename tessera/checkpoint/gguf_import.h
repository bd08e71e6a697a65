// Makes a Hugging Face model folder from a GGUF file.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/checkpoint/gguf_model.h"
#include "tessera/core/dtype.h"

namespace tessera::checkpoint {

// Returns the bytes of the weights that import_gguf() writes; INT64_MAX if the sum overflows.
int64_t gguf_import_bytes(const GgufModel& model, DType dtype);

// Writes config.json, generation_config.json and the weights, expanded to `dtype` (F32, BF16 or F16), into
// `folder`, which is made if it is missing. The tokenizer is not written here but by text::Tokenizer. Holds a
// few MiB of one tensor at a time.
void import_gguf(const GgufModel& model, const std::string& folder, DType dtype);

}  // namespace tessera::checkpoint
