// Loads a model, with or without an adapter, to be used and not trained.
#pragma once

#include <memory>
#include <string>

#include <c10/core/TensorOptions.h>

#include "tessera/models/common/causal_lm.h"
#include "tessera/parallel/device_mesh.h"

namespace tessera::cli {

// Returns the mesh of this process alone.
parallel::DeviceMesh one_rank();

// Returns the model of `folder` in eval mode, with the adapter of `adapter_folder` unless that is empty. It
// computes in the type and on the device of `options` (matrices stored in bf16 stay so). Each layer is cut
// over the ranks along tp, and the layers are dealt to the ranks along pp; all ranks must then make the same
// calls. Throws Error(Model), and Error(Config) for layers that cannot be cut so. Collective.
std::shared_ptr<models::CausalLM> load_for_inference(const std::string& folder,
                                                     const std::string& adapter_folder,
                                                     const at::TensorOptions& options,
                                                     const parallel::DeviceMesh& mesh = one_rank());
// Does what load_for_inference() does for a GGUF file, which is expanded as it is read.
std::shared_ptr<models::CausalLM> load_gguf_for_inference(const std::string& file,
                                                          const std::string& adapter_folder,
                                                          const at::TensorOptions& options,
                                                          const parallel::DeviceMesh& mesh = one_rank());

}  // namespace tessera::cli
