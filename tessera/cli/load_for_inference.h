// A model folder, with or without an adapter, as one process uses it.
#pragma once

#include <memory>
#include <string>

#include <c10/core/ScalarType.h>

#include "tessera/models/common/causal_lm.h"

namespace CLI {
class App;
}

namespace tessera::cli {

// The model of `folder` in eval mode, computing in `dtype` (matrices stored in bf16 stay so), with the
// adapter of `adapter_folder` unless that is empty. Throws Error(Model).
std::shared_ptr<models::CausalLM> load_for_inference(const std::string& folder,
                                                     const std::string& adapter_folder, at::ScalarType dtype);
// The same of a GGUF file, which is expanded as it is read.
std::shared_ptr<models::CausalLM> load_gguf_for_inference(const std::string& file,
                                                          const std::string& adapter_folder,
                                                          at::ScalarType dtype);

// The option --dtype of verbs that run a model: fp32 (the default), bf16 or fp64 in `value`.
void add_inference_dtype(CLI::App& verb, std::string& value);
// What it names.
at::ScalarType inference_dtype(const std::string& value);

}  // namespace tessera::cli
