#include "tessera/cli/load_for_inference.h"

#include <utility>

#include "tessera/checkpoint/gguf_tensors.h"
#include "tessera/io/model_files.h"
#include "tessera/models/common/load.h"
#include "tessera/models/registry.h"
#include "tessera/peft/adapter_files.h"

namespace tessera::cli {
namespace {

std::shared_ptr<models::CausalLM> load(std::shared_ptr<models::CausalLM> model,
                                       const std::shared_ptr<const checkpoint::StoredTensors>& files,
                                       const std::string& adapter_folder, at::Device device) {
  // Adapters are added to weights of the model's own type.
  models::load_weights(*model, files, adapter_folder.empty(), device);
  if (!adapter_folder.empty()) peft::load_adapter(*model, adapter_folder, {}, device);
  model->eval();
  return model;
}

}  // namespace

std::shared_ptr<models::CausalLM> load_for_inference(const std::string& folder,
                                                     const std::string& adapter_folder,
                                                     const at::TensorOptions& options) {
  auto model = models::build_model(folder, c10::typeMetaToScalarType(options.dtype()));
  const auto files = std::make_shared<const io::ModelFiles>(io::ModelFiles::open(folder));
  return load(std::move(model), checkpoint::stored_tensors(files), adapter_folder, options.device());
}

std::shared_ptr<models::CausalLM> load_gguf_for_inference(const std::string& file,
                                                          const std::string& adapter_folder,
                                                          const at::TensorOptions& options) {
  const auto gguf = std::make_shared<const checkpoint::GgufModel>(io::GgufFile::open(file));
  const auto config = models::parse_model_config(gguf->config(DType::F32), file);
  return load(models::build_model(*config, c10::typeMetaToScalarType(options.dtype())),
              checkpoint::stored_tensors(gguf), adapter_folder, options.device());
}

}  // namespace tessera::cli
