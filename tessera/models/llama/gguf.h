// Names the tensors of the GGUF files that hold models of the Llama family.
#pragma once

#include <vector>

#include "tessera/checkpoint/gguf_architecture.h"

namespace tessera::models {

// Lists the architectures whose files hold models of this family.
std::vector<checkpoint::GgufArchitecture> llama_gguf_architectures();

}  // namespace tessera::models
