// Writes a model as a GGUF file.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/checkpoint/gguf_export.h"
#include "tessera/models/common/base_model.h"

namespace tessera::models {

struct GgufReport {
  int64_t num_tensors = 0;
  int64_t num_bytes = 0;  // of the file
};

// Writes the model at `source`, a Hugging Face folder or a GGUF file, with its tokenizer to the file `path`,
// which appears when it is complete. Before that the file is read back: its tensors must be those of the
// model that it says it is, and its tokenizer must make the same tokens. Memory holds some MiB of one tensor.
// Throws Error(Model, "UNSUPPORTED") for a model that has no such file, and what checkpoint/gguf_export.h and
// Tokenizer::add_gguf_metadata() throw.
GgufReport write_gguf(const std::string& source, const checkpoint::GgufMixture& mixture,
                      const std::string& path);

}  // namespace tessera::models
