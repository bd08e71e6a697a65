#include "tessera/train/setup.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/config/parallelism.h"
#include "tessera/core/torch_dtype.h"
#include "tessera/io/model_files.h"
#include "tessera/models/common/load.h"
#include "tessera/models/common/parallelize.h"
#include "tessera/models/parallelize_plan.h"
#include "tessera/models/registry.h"
#include "tessera/parallel/tensor_parallel/tensor_parallel.h"
#include "tessera/peft/adapter_files.h"

namespace tessera::train {
namespace {

parallel::ShardOptions shard_options(const config::Recipe& recipe) {
  parallel::ShardOptions options;
  options.reshard_after_forward = recipe.zero_stage == config::ZeroStage::Zero3;
  options.reduce_every_backward =
      recipe.zero_stage == config::ZeroStage::Zero2 || recipe.zero_stage == config::ZeroStage::Zero3;
  // The loss is divided by the label tokens of the whole step.
  options.average_gradients = false;
  options.broadcast_initial_values = false;
  const RunTypes types = run_types(recipe.dtype);
  if (types.compute != types.stored) {
    options.mixed_precision.param_dtype = types.compute;
    options.mixed_precision.reduce_dtype = types.stored;
    // The models keep their own types between blocks.
    options.mixed_precision.cast_forward_inputs = false;
    // One backward a step leaves nothing to sum. Adapters' gradients are small.
    options.mixed_precision.keeps_narrow_gradients =
        recipe.gradient_accumulation_steps == 1 && recipe.adapter == config::AdapterKind::None;
  }
  return options;
}

std::vector<std::string> shared_modules(const models::CausalLM& model) {
  // Modules whose weight another name reads too cannot be trained apart from it.
  std::vector<std::string> modules;
  for (const auto& tied : model.tied_parameters()) {
    for (const std::string& name : {tied.alias, tied.owner})
      modules.push_back(name.substr(0, name.rfind('.')));
  }
  return modules;
}

}  // namespace

parallel::ParallelDims parallel_dims(const config::Recipe& recipe, int64_t world_size) {
  const config::ParallelSizes sizes = config::validate_parallelism(recipe, world_size);
  parallel::ParallelDims dims;
  dims.dp_replicate = sizes.dp_replicate;
  dims.dp_shard = sizes.dp_shard;
  dims.tp = sizes.tp;
  if (recipe.zero_stage == config::ZeroStage::Ddp) {
    dims.dp_replicate *= dims.dp_shard;
    dims.dp_shard = 1;
  }
  return dims;
}

RunTypes run_types(config::ComputeType type) {
  switch (type) {
    case config::ComputeType::Float64: return {at::kDouble, at::kDouble};
    case config::ComputeType::BFloat16: return {at::kFloat, at::kBFloat16};
    default: return {at::kFloat, at::kFloat};
  }
}

peft::LoraOptions lora_options(const config::Recipe& recipe) {
  peft::LoraOptions options;
  options.rank = recipe.lora_r;
  options.alpha = recipe.lora_alpha;
  options.dropout = recipe.lora_dropout;
  options.use_rslora = recipe.peft_use_rslora;
  options.all_linear = recipe.lora_target_linear;
  options.target_regex = recipe.lora_target_regex;
  options.target_modules = recipe.lora_target_modules;
  options.modules_to_save = recipe.lora_modules_to_save;
  return options;
}

namespace {

// An error about targets names the recipe's line.
peft::LoraTargets apply_recipe_lora(models::CausalLM& model, const config::Recipe& recipe,
                                    const peft::LoraOptions& options) {
  try {
    return peft::apply_lora(model, options, shared_modules(model));
  } catch (Error& error) {
    const bool is_saved =
        std::string_view(error.what()).find("lora_modules_to_save") != std::string_view::npos;
    for (const char* key : {is_saved ? "lora_modules_to_save" : "lora_target_modules", "lora_target_regex",
                            "lora_target_linear", "adapter"}) {
      const auto place = recipe.key_places.find(key);
      if (place == recipe.key_places.end()) continue;
      throw error.at(place->second.file, place->second.line, place->second.column);
    }
    throw;
  }
}

AdapterSetup put_adapter(models::CausalLM& model, const config::Recipe& recipe) {
  AdapterSetup adapter;
  if (recipe.lora_model_dir.empty()) {
    adapter.options = lora_options(recipe);
    adapter.targets = apply_recipe_lora(model, recipe, adapter.options);
    return adapter;
  }
  peft::AdapterConfig continued = peft::read_adapter_config(recipe.lora_model_dir);
  continued.options.dropout = recipe.lora_dropout;
  adapter.options = continued.options;
  adapter.targets = peft::apply_adapter(model, continued, shared_modules(model));
  return adapter;
}

// An error names the recipe's line.
void check_tensor_parallel(const models::CausalLM& model, const config::Recipe& recipe) {
  if (recipe.tensor_parallel_size == 1) return;
  try {
    parallel::check_tensor_parallel(model, models::tensor_parallel_plan(model), recipe.tensor_parallel_size);
  } catch (Error& error) {
    const auto place = recipe.key_places.find("tensor_parallel_size");
    if (place == recipe.key_places.end()) throw;
    throw error.at(place->second.file, place->second.line, place->second.column);
  }
}

}  // namespace

PlannedModel plan_model(const config::Recipe& recipe, const models::ModelConfig& config) {
  PlannedModel planned;
  planned.model = models::build_model(config, run_types(recipe.dtype).stored);
  models::CausalLM& model = *planned.model;
  planned.saved = models::state_dict_adapter(model);
  check_tensor_parallel(model, recipe);
  // What an adapter holds comes before the base's, and what neither holds is random.
  std::vector<std::shared_ptr<const checkpoint::ParameterSource>> sources;
  if (!recipe.random_init) {
    planned.files.push_back(std::make_shared<const io::ModelFiles>(io::ModelFiles::open(recipe.base_model)));
    const auto stored = checkpoint::stored_tensors(planned.files.back());
    models::check_tensors(model, *stored);
    sources.push_back(checkpoint::stored_source(stored, planned.saved));
  }
  if (recipe.adapter == config::AdapterKind::Lora) {
    planned.adapter = put_adapter(model, recipe);
    planned.saved = peft::adapter_table(model, planned.adapter->targets);
    if (!recipe.lora_model_dir.empty()) {
      planned.files.push_back(
          std::make_shared<const io::ModelFiles>(peft::open_adapter(recipe.lora_model_dir)));
      const peft::LoraTargets& targets = planned.adapter->targets;
      sources.insert(sources.begin(), peft::adapter_source(model, targets, planned.files.back()));
    }
  }
  sources.push_back(models::random_source(model, static_cast<uint64_t>(recipe.seed)));
  planned.source = std::make_shared<checkpoint::SourceList>(std::move(sources));
  return planned;
}

TrainedModel set_up_model(const config::Recipe& recipe, const parallel::DeviceMesh& mesh) {
  return set_up_model(recipe, plan_model(recipe, *models::read_model_config(recipe.base_model)), mesh);
}

TrainedModel set_up_model(const config::Recipe& recipe, PlannedModel planned,
                          const parallel::DeviceMesh& mesh) {
  TrainedModel trained;
  trained.model = std::move(planned.model);
  trained.adapter = std::move(planned.adapter);
  trained.saved = std::move(planned.saved);

  models::ParallelizeOptions options;
  options.checkpoint_blocks = recipe.gradient_checkpointing == config::Checkpointing::Block;
  options.recompute_mlps = recipe.gradient_checkpointing == config::Checkpointing::Mlp;
  options.shard = shard_options(recipe);
  trained.sharded = models::parallelize(*trained.model, mesh, options);

  trained.sharded->materialize([&](const parallel::ShardedParameter& parameter) {
    planned.source->read(parameter.name, parameter.box, parameter.tile.detach());
  });
  return trained;
}

checkpoint::FolderPlan result_folder(const TrainedModel& trained, const config::Recipe& recipe,
                                     const checkpoint::BaseFiles& base) {
  if (!trained.adapter) {
    return checkpoint::model_folder(trained.saved, base, to_dtype(run_types(recipe.dtype).stored));
  }
  const std::string base_model = std::filesystem::absolute(recipe.base_model).lexically_normal().string();
  return peft::adapter_folder(trained.saved, trained.adapter->options, trained.adapter->targets, base_model);
}

}  // namespace tessera::train
