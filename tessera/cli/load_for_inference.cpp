#include "tessera/cli/load_for_inference.h"

#include "tessera/io/model_files.h"
#include "tessera/models/common/load.h"
#include "tessera/models/registry.h"
#include "tessera/peft/adapter_files.h"

namespace tessera::cli {

std::shared_ptr<models::CausalLM> load_for_inference(const std::string& folder,
                                                     const std::string& adapter_folder,
                                                     at::ScalarType dtype) {
  auto model = models::build_model(folder, dtype);
  models::load_weights(*model, io::ModelFiles::open(folder));
  if (!adapter_folder.empty()) peft::load_adapter(*model, adapter_folder);
  model->eval();
  return model;
}

}  // namespace tessera::cli
