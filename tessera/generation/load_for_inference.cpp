#include "tessera/generation/load_for_inference.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/checkpoint/gguf_tensors.h"
#include "tessera/io/model_files.h"
#include "tessera/models/common/load.h"
#include "tessera/models/common/parallelize.h"
#include "tessera/models/common/pipeline.h"
#include "tessera/models/registry.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/peft/adapter_files.h"

namespace tessera::generation {

parallel::DeviceMesh one_rank() { return {comm::Communicator::single(), {}}; }

std::shared_ptr<models::CausalLM> load_for_inference(const std::string& path,
                                                     const std::string& adapter_folder,
                                                     const at::TensorOptions& options,
                                                     const parallel::DeviceMesh& mesh) {
  const at::ScalarType type = c10::typeMetaToScalarType(options.dtype());
  std::shared_ptr<models::CausalLM> model;
  std::shared_ptr<const checkpoint::StoredTensors> files;
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored)) {
    model = models::build_model(path, type);
    files = checkpoint::stored_tensors(std::make_shared<const io::ModelFiles>(io::ModelFiles::open(path)));
  } else {
    const auto gguf = std::make_shared<const checkpoint::GgufModel>(io::GgufFile::open(path));
    model = models::build_model(*models::parse_model_config(gguf->config(DType::F32), path), type);
    files = checkpoint::stored_tensors(gguf);
  }
  models::check_tensors(*model, *files);
  std::vector<std::shared_ptr<const checkpoint::ParameterSource>> sources = {
      checkpoint::stored_source(files, models::state_dict_adapter(*model))};
  if (!adapter_folder.empty()) {
    const peft::LoraTargets targets = peft::apply_adapter(*model, peft::read_adapter_config(adapter_folder));
    const auto adapter = std::make_shared<const io::ModelFiles>(peft::open_adapter(adapter_folder));
    sources.insert(sources.begin(), peft::adapter_source(*model, targets, adapter));
  }
  const auto& tp = mesh.group(parallel::kAxisTp);
  const auto& pp = mesh.group(parallel::kAxisPp);
  // The plan is made before the layers are cut: their parts may be uneven, and each rank of tp would make
  // another plan.
  std::optional<parallel::PipelinePlan> plan;
  if (pp->size() > 1) plan = models::plan_pipeline(*model, pp->size(), {});
  parallel::ParameterLayouts layouts;
  if (tp->size() > 1) layouts = models::cut_layers(*model, {parallel::kAxisTp, tp});
  if (plan) {
    const parallel::Pipeline stages(*model, models::pipeline_parts(*model), *plan, {parallel::kAxisPp, pp},
                                    layouts);
    models::decode_in_stages(*model, *plan, pp);
  }
  models::BoxOf box_of;
  if (mesh.world()->size() > 1) {
    box_of = [&](const at::Tensor& parameter) {
      return layouts.of(parameter).local_box(parallel::coordinates_on(layouts.axes_of(parameter)));
    };
  }
  // Matrices that are stored in bf16 stay so, unless an adapter is put on them: it is added to weights of the
  // model's own type.
  models::load_weights(*model, checkpoint::SourceList(std::move(sources)), adapter_folder.empty(),
                       options.device(), box_of);
  model->eval();
  return model;
}

}  // namespace tessera::generation
