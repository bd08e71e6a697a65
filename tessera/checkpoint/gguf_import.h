// Making a Hugging Face model folder out of a GGUF file.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/checkpoint/gguf_model.h"
#include "tessera/core/dtype.h"

namespace tessera::checkpoint {

// Bytes of the weights that import_gguf() writes.
int64_t gguf_import_bytes(const GgufModel& model, DType dtype);

// Writes config.json, generation_config.json and the weights, expanded to `dtype` (F32, BF16 or F16), into
// `folder`; the tokenizer is text::Tokenizer's to write. Holds a few MiB of one tensor at a time.
void import_gguf(const GgufModel& model, const std::string& folder, DType dtype);

}  // namespace tessera::checkpoint
