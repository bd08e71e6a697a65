// The weights of a GGUF file, read where they lie.
#pragma once

#include <memory>

#include "tessera/checkpoint/gguf_model.h"
#include "tessera/checkpoint/stored_tensors.h"

namespace tessera::checkpoint {

// As the tensors of a Hugging Face folder in float32, expanded as they are read.
std::shared_ptr<const StoredTensors> stored_tensors(std::shared_ptr<const GgufModel> model);

}  // namespace tessera::checkpoint
