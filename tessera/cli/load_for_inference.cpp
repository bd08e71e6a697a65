#include "tessera/cli/load_for_inference.h"

#include <CLI/CLI.hpp>

#include "tessera/io/model_files.h"
#include "tessera/models/common/load.h"
#include "tessera/models/registry.h"
#include "tessera/peft/adapter_files.h"

namespace tessera::cli {

std::shared_ptr<models::CausalLM> load_for_inference(const std::string& folder,
                                                     const std::string& adapter_folder,
                                                     at::ScalarType dtype) {
  auto model = models::build_model(folder, dtype);
  // Adapters are added to weights of the model's own type.
  models::load_weights(*model, io::ModelFiles::open(folder), adapter_folder.empty());
  if (!adapter_folder.empty()) peft::load_adapter(*model, adapter_folder);
  model->eval();
  return model;
}

void add_inference_dtype(CLI::App& verb, std::string& value) {
  verb.add_option("--dtype", value, "Type of the weights and the cache: fp32, bf16 or fp64")
      ->check(CLI::IsMember({"fp32", "bf16", "fp64"}));
}

at::ScalarType inference_dtype(const std::string& value) {
  return value == "bf16" ? at::kBFloat16 : value == "fp64" ? at::kDouble : at::kFloat;
}

}  // namespace tessera::cli
