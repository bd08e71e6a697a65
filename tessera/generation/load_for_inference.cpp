#include "tessera/generation/load_for_inference.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/core/error.h"
#include "tessera/hub/fetch.h"
#include "tessera/io/file.h"
#include "tessera/io/run_inputs.h"
#include "tessera/models/common/assembly.h"
#include "tessera/models/common/base_model.h"
#include "tessera/models/common/load.h"
#include "tessera/models/common/parallelize.h"
#include "tessera/models/common/pipeline.h"
#include "tessera/models/registry.h"
#include "tessera/peft/adapter_files.h"
#include "tessera/peft/row_adapters.h"

namespace tessera::generation {

namespace fs = std::filesystem;

bool is_adapter(const std::string& folder) {
  if (!io::exists(io::join_path(folder, "adapter_config.json"))) return false;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("model") &&
        (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")))
      return false;
  }
  return true;
}

namespace {

// Cuts each layer over the ranks along tp, and deals the layers to the ranks along pp. Returns the box of
// each parameter that this rank holds; nothing where it holds all of each.
models::BoxOf cut_for_inference(models::CausalLM& model, const parallel::DeviceMesh& mesh) {
  const auto& tp = mesh.group(parallel::kAxisTp);
  const auto& pp = mesh.group(parallel::kAxisPp);
  // The plan is made before the layers are cut: their parts may be uneven, and each rank of tp would make
  // another plan.
  std::optional<parallel::PipelinePlan> plan;
  if (pp->size() > 1) plan = models::plan_pipeline(model, pp->size(), {});
  parallel::ParameterLayouts layouts;
  if (tp->size() > 1) layouts = models::cut_layers(model, {parallel::kAxisTp, tp});
  if (plan) {
    const parallel::Pipeline stages(model, models::pipeline_parts(model), *plan, {parallel::kAxisPp, pp},
                                    layouts);
    models::decode_in_stages(model, *plan, pp);
  }
  if (mesh.world()->size() == 1) return {};
  return [layouts = std::move(layouts)](const at::Tensor& parameter) {
    return layouts.of(parameter).local_box(parallel::coordinates_on(layouts.axes_of(parameter)));
  };
}

}  // namespace

std::shared_ptr<models::CausalLM> load_for_inference(const std::string& path,
                                                     const std::string& adapter_folder,
                                                     const at::TensorOptions& options,
                                                     const parallel::DeviceMesh& mesh, InferenceUses uses) {
  std::optional<models::AdapterFolder> adapter;
  if (!adapter_folder.empty()) adapter = models::AdapterFolder::open(adapter_folder);
  models::BaseModel base = adapter ? adapter->open_base(path) : models::BaseModel::open(path);
  const bool is_body = uses.embeddings && base.config().is_encoder && !base.config().classification;
  if (is_body) base = base.as_classifier({ProblemType::SingleLabel, default_labels(2)});
  models::Assembly assembly(base, {.type = c10::typeMetaToScalarType(options.dtype()),
                                   .takes_new_head = adapter || is_body,
                                   .seed = is_body ? std::optional<uint64_t>(0) : std::nullopt});
  const bool has_adapter = adapter || uses.loaded_adapters;
  // On other devices than the host, blocks are expanded once, when they are loaded.
  if (options.device() == kHost) {
    const int64_t ranks = mesh.size(parallel::kAxisTp);
    // Adapters may bring rows of tokens, which are added to tables of values.
    assembly.quantize({.tables = !has_adapter && ranks == 1, .tensor_parallel_size = ranks});
  }
  if (adapter) assembly.put_adapter(*adapter);
  const auto source = assembly.source();
  const std::shared_ptr<models::CausalLM> model = assembly.model();
  const models::BoxOf box_of = cut_for_inference(*model, mesh);
  // Matrices that are stored in bf16 stay so, unless adapters are put on them: these are added to weights of
  // the model's own type.
  const bool keeps_narrow = !has_adapter && !uses.adapters;
  models::load_weights(*model, *source, keeps_narrow, options.device(), box_of);
  model->eval();
  return model;
}

std::string adapter_base(const std::string& adapter, const std::string& how_to_name) {
  const peft::AdapterConfig config = peft::read_adapter_config(adapter);
  const std::string& name = config.base_model;
  const auto is_model = [](const fs::path& path) {
    return io::is_folder(path.string()) || (path.extension() == ".gguf" && io::exists(path.string()));
  };
  if (!name.empty() && is_model(name)) return name;
  if (const fs::path beside = fs::path(adapter) / name; !name.empty() && is_model(beside))
    return beside.string();
  const hub::Repository repository{hub::Kind::Model, name, config.revision};
  if (const bool is_at_hand = hub::find_snapshot(repository).has_value();
      is_at_hand || (hub::is_fetchable(name) && !hub::is_offline())) {
    try {
      if (const auto found = hub::fetch_model(name, config.revision, hub::Want::Model)) return *found;
    } catch (Error& error) {
      error.within("the adapter's base model");
      throw;
    }
  }
  Error error(ErrorKind::Model, "ADAPTER-BASE",
              name.empty() ? "the adapter does not name its base model"
                           : "the adapter's base model is not on this machine");
  error.in(config.source_file + ": base_model_name_or_path");
  if (!name.empty()) error.got("'" + name + "'");
  throw error.need("a model folder or a GGUF file").hint(how_to_name);
}

std::optional<peft::ExpertBase> expert_base(const std::string& base, const std::string& adapter) {
  if (peft::read_adapter_config(adapter).options.target_parameters.empty()) return std::nullopt;
  const models::BaseModel opened = models::AdapterFolder::open(adapter).open_base(base);
  const auto model = models::build_model(opened.config(), at::kFloat);
  return peft::ExpertBase{model, models::state_dict_adapter(*model), model->tied_modules()};
}

ModelSource::ModelSource(std::string path, std::string adapter)
    : base_(std::move(path)), adapter_(std::move(adapter)) {
  if (adapter_.empty() && is_adapter(base_)) {
    adapter_ = base_;
    base_ = adapter_base(adapter_, "--model BASE --adapter " + adapter_);
  }
  if (const std::string config = io::join_path(base_, "config.json");
      !models::BaseModel::is_gguf(base_) && !io::exists(config))
    throw io::missing_file(config);
  const bool has_own = !adapter_.empty() && io::exists(io::join_path(adapter_, "tokenizer.json"));
  tokenizer_ = models::BaseModel::tokenizer(has_own ? adapter_ : base_);
}

void add_adapters(models::CausalLM& model, const std::string& path, const std::vector<std::string>& folders) {
  models::BaseModel base = models::BaseModel::open(path);
  if (model.config().classification) base = base.as_classifier(*model.config().classification);
  const auto whole = models::build_model(base.config(), model.hidden_type());
  model.set_adapter_rows(
      peft::apply_row_adapters(model, *whole, folders, model.tied_modules(), model.device()));
  model.eval();
}

std::vector<int64_t> stop_ids(const models::CausalLM& model, const text::Tokenizer& tokenizer) {
  std::vector<int64_t> ids = model.config().eos_token_ids;
  for (const int32_t id : tokenizer.stop_ids()) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

}  // namespace tessera::generation
