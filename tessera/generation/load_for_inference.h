// Loads a model, with or without an adapter, to be used and not trained.
#pragma once

#include <memory>
#include <string>

#include <c10/core/TensorOptions.h>

#include "tessera/models/common/causal_lm.h"
#include "tessera/parallel/device_mesh.h"

namespace tessera::generation {

// Returns the mesh of this process alone.
parallel::DeviceMesh one_rank();

// Returns the model of a folder or a GGUF file in eval mode, with the adapter of `adapter_folder` unless that
// is empty. It computes in the type and on the device of `options` (matrices stored in bf16 stay so; a GGUF
// file is expanded as it is read). Each layer is cut over the ranks along tp, and the layers are dealt to the
// ranks along pp; all ranks must then make the same calls. Throws Error(Model), and Error(Config) for layers
// that cannot be cut so. Collective.
std::shared_ptr<models::CausalLM> load_for_inference(const std::string& path,
                                                     const std::string& adapter_folder,
                                                     const at::TensorOptions& options,
                                                     const parallel::DeviceMesh& mesh = one_rank());

}  // namespace tessera::generation
