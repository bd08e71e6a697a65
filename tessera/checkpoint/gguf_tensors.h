// The weights of a GGUF file as stored tensors.
#pragma once

#include <memory>

#include "tessera/checkpoint/gguf_model.h"
#include "tessera/checkpoint/stored_tensors.h"

namespace tessera::checkpoint {

// Returns the file's weights as the tensors that a Hugging Face folder in float32 would have. They stay in
// the file and are expanded as they are read.
std::shared_ptr<const StoredTensors> stored_tensors(std::shared_ptr<const GgufModel> model);

}  // namespace tessera::checkpoint
