// A model folder, with or without an adapter, as one process uses it.
#pragma once

#include <memory>
#include <string>

#include <c10/core/ScalarType.h>

#include "tessera/models/common/causal_lm.h"

namespace tessera::cli {

// The model of `folder` in eval mode with its weights in `dtype`, with the adapter of `adapter_folder` unless
// that is empty. Throws Error(Model).
std::shared_ptr<models::CausalLM> load_for_inference(const std::string& folder,
                                                     const std::string& adapter_folder, at::ScalarType dtype);

}  // namespace tessera::cli
