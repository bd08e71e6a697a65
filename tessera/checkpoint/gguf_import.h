// Making a Hugging Face model folder out of a GGUF file.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/core/dtype.h"
#include "tessera/io/gguf.h"

namespace tessera::checkpoint {

struct GgufImportReport {
  std::string model_type;  // "llama", "qwen2", "qwen3"
  int64_t num_tensors = 0;
  int64_t total_bytes = 0;  // of the tensors written
};

// Bytes of the weights that import_gguf() writes.
int64_t gguf_import_bytes(const io::GgufFile& file, DType dtype);

// Writes config.json, generation_config.json and the weights, expanded to `dtype` (F32, BF16 or F16), into
// `folder`; the tokenizer is data::Tokenizer's to write. Holds a few MiB of one tensor at a time. The rows of
// the query and key projections, which GGUF files of the llama architecture keep interleaved for their rotary
// embedding, are put back into Hugging Face's order. Throws Error(Model) for an architecture or a tensor that
// it does not know, for missing metadata and for a setting that is
// not a number, before anything is written.
GgufImportReport import_gguf(const io::GgufFile& file, const std::string& folder, DType dtype);

}  // namespace tessera::checkpoint
