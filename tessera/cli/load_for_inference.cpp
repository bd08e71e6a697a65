#include "tessera/cli/load_for_inference.h"

#include <utility>

#include <CLI/CLI.hpp>

#include "tessera/checkpoint/gguf_tensors.h"
#include "tessera/io/model_files.h"
#include "tessera/models/common/load.h"
#include "tessera/models/registry.h"
#include "tessera/peft/adapter_files.h"

namespace tessera::cli {
namespace {

std::shared_ptr<models::CausalLM> load(std::shared_ptr<models::CausalLM> model,
                                       const std::shared_ptr<const checkpoint::StoredTensors>& files,
                                       const std::string& adapter_folder) {
  // Adapters are added to weights of the model's own type.
  models::load_weights(*model, files, adapter_folder.empty());
  if (!adapter_folder.empty()) peft::load_adapter(*model, adapter_folder);
  model->eval();
  return model;
}

}  // namespace

std::shared_ptr<models::CausalLM> load_for_inference(const std::string& folder,
                                                     const std::string& adapter_folder,
                                                     at::ScalarType dtype) {
  auto model = models::build_model(folder, dtype);
  const auto files = std::make_shared<const io::ModelFiles>(io::ModelFiles::open(folder));
  return load(std::move(model), checkpoint::stored_tensors(files), adapter_folder);
}

std::shared_ptr<models::CausalLM> load_gguf_for_inference(const std::string& file,
                                                          const std::string& adapter_folder,
                                                          at::ScalarType dtype) {
  const auto gguf = std::make_shared<const checkpoint::GgufModel>(io::GgufFile::open(file));
  const auto config = models::parse_model_config(gguf->config(DType::F32), file);
  return load(models::build_model(*config, dtype), checkpoint::stored_tensors(gguf), adapter_folder);
}

void add_inference_dtype(CLI::App& verb, std::string& value) {
  verb.add_option("--dtype", value, "Type of the weights and the cache: fp32, bf16 or fp64")
      ->check(CLI::IsMember({"fp32", "bf16", "fp64"}));
}

at::ScalarType inference_dtype(const std::string& value) {
  return value == "bf16" ? at::kBFloat16 : value == "fp64" ? at::kDouble : at::kFloat;
}

}  // namespace tessera::cli
