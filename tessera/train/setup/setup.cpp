#include "tessera/train/setup/setup.h"

#include <string>
#include <utility>
#include <vector>

#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/device/device_event.h"
#include "tessera/models/common/parallelize.h"
#include "tessera/parallel/activation_offload.h"
#include "tessera/train/setup/recipe_tokenizer.h"
#include "tessera/train/setup/recipe_values.h"

namespace tessera::train {
namespace {

// Translates the recipe's ZeRO stage, dtypes and offloading into options of fully_shard().
parallel::ShardOptions shard_options(const config::Recipe& recipe) {
  parallel::ShardOptions options;
  options.reshard_after_forward = recipe.zero_stage == config::ZeroStage::Zero3;
  // The micro-batches of a pipeline are in flight together, so their gradients are reduced once, at the end
  // of the step.
  options.reduce_every_backward =
      recipe.pipeline_parallel_size == 1 &&
      (recipe.zero_stage == config::ZeroStage::Zero2 || recipe.zero_stage == config::ZeroStage::Zero3);
  // Gradients are summed over the ranks, not averaged: the loss is already divided by the label tokens of the
  // whole step.
  options.average_gradients = false;
  // Every rank fills its own tiles from the files (set_up_model()).
  options.broadcast_initial_values = false;
  options.offload_parameters = recipe.offload_param_device == config::OffloadDevice::Cpu;
  options.reports_gradients = recipe.update_in_backward;
  options.mixed_precision.codes_parameters = recipe.zero_quantized_weights;
  options.mixed_precision.codes_gradients = recipe.zero_quantized_gradients;
  const RunTypes types = run_types(recipe);
  // Gradients may stay in bfloat16 where a step has one backward, which leaves nothing to add up. For
  // adapters this would save little, as their gradients are small. Float16 would round the gradients of the
  // scaled loss too soon: the scale is taken off only at the update.
  options.mixed_precision.keeps_narrow_gradients =
      types.compute == at::kBFloat16 && recipe.gradient_accumulation_steps == 1 &&
      recipe.pipeline_microbatches <= 1 && recipe.adapter == config::AdapterKind::None;
  if (types.compute == at::kBFloat16) options.mixed_precision.reduce_dtype = at::kFloat;
  if (types.compute != types.stored) {
    options.mixed_precision.param_dtype = types.compute;
    options.mixed_precision.reduce_dtype = types.stored;
    // The models keep the dtypes between their blocks themselves.
    options.mixed_precision.cast_forward_inputs = false;
  }
  return options;
}

// Says that the recipe's offload keys have no effect, for a run that computes on the host.
void tell_offloading_is_idle(const config::Recipe& recipe) {
  std::vector<std::string> keys;
  if (recipe.activation_offloading != config::Offloading::Off) keys.push_back("activation_offloading");
  if (recipe.offload_optimizer_device == config::OffloadDevice::Cpu)
    keys.push_back("offload_optimizer_device");
  if (recipe.offload_param_device != config::OffloadDevice::None) keys.push_back("offload_param_device");
  if (keys.empty()) return;
  log::info(join(keys, ", ") + (keys.size() == 1 ? " has" : " have") +
            " no effect: the run computes on the CPU");
}

}  // namespace

TrainedModel set_up_model(const config::Recipe& recipe, const parallel::DeviceMesh& mesh) {
  config::Problems problems;
  PlannedModel planned = plan_model(recipe, open_recipe_base(recipe), problems);
  problems.settle();
  return set_up_model(recipe, std::move(planned), mesh);
}

TrainedModel set_up_model(const config::Recipe& recipe, PlannedModel planned,
                          const parallel::DeviceMesh& mesh) {
  TrainedModel trained{std::move(static_cast<ModelSetup&>(planned))};

  models::ParallelizeOptions options;
  const bool is_block = recipe.gradient_checkpointing == config::Checkpointing::Block;
  options.checkpoint_every = is_block ? recipe.gradient_checkpointing_every : 0;
  options.recompute_mlps = recipe.gradient_checkpointing == config::Checkpointing::Mlp;
  if (recipe.activation_offloading != config::Offloading::Off)
    options.least_offloaded_bytes = parallel::kLeastOffloadedBytes;
  if (!has_streams(mesh.device())) tell_offloading_is_idle(recipe);
  options.tensor_parallel.sequence_parallel = recipe.tensor_parallel_size > 1;
  options.tensor_parallel.async = recipe.async_tensor_parallel;
  options.context_parallel = recipe.context_parallel_method;
  options.pipeline = std::move(planned.pipeline);
  options.shard = shard_options(recipe);
  // The model is cut while it is still on the meta device. Only afterwards do the tiles get memory, so a rank
  // never holds more of the model than its tiles.
  models::ParallelModel parallel = models::parallelize(*trained.model, mesh, options);
  trained.sharded = std::move(parallel.sharded);
  trained.pipeline = std::move(parallel.pipeline);
  trained.sharded->materialize([&](const parallel::ShardedParameter& parameter) {
    planned.source->read(parameter.name, parameter.box, parameter.tile.detach());
  });
  return trained;
}

}  // namespace tessera::train
