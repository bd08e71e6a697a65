// Names the tensors and the metadata of the GGUF files that hold models of the Llama family.
#pragma once

#include <vector>

#include "tessera/checkpoint/gguf_architecture.h"
#include "tessera/io/gguf_writer.h"
#include "tessera/models/common/model_config.h"

namespace tessera::models {

// Lists the architectures whose files hold models of this family.
std::vector<checkpoint::GgufArchitecture> llama_gguf_architectures();

// Adds the metadata of such a file; see Family::add_gguf_metadata.
std::vector<float> add_llama_gguf_metadata(const ModelConfig& config,
                                           const checkpoint::GgufArchitecture& architecture,
                                           io::GgufMetadata& metadata);

}  // namespace tessera::models
