#include "tessera/train/setup/recipe_values.h"

#include "tessera/comm/bootstrap.h"
#include "tessera/config/parallelism.h"
#include "tessera/core/error.h"
#include "tessera/device/device.h"

namespace tessera::train {

ParallelDims parallel_dims(const config::Recipe& recipe, int64_t world_size) {
  ParallelDims dims = config::validate_parallelism(recipe, world_size);
  if (recipe.zero_quantized_gradients) dims.machine = 0;
  if (recipe.zero_stage == config::ZeroStage::Ddp) {
    dims.dp_replicate *= dims.dp_shard;
    dims.dp_shard = 1;
  }
  return dims;
}

at::Device device_of(const DeviceChoice& device, const config::KeyPlaces& places) {
  try {
    return resolve_device(device, comm::launch_info().local_rank);
  } catch (Error& error) {
    if (places.key_places.contains("device")) error.at(places.place_of({"device"}));
    throw;
  }
}

RunTypes run_types(const config::PrecisionConfig& keys) {
  switch (keys.dtype) {
    case config::ComputeType::Float64: return {at::kDouble, at::kDouble};
    case config::ComputeType::BFloat16: return {keys.pure_bf16 ? at::kBFloat16 : at::kFloat, at::kBFloat16};
    case config::ComputeType::Float16: return {at::kFloat, at::kHalf};
    default: return {at::kFloat, at::kFloat};
  }
}

ops::LossTerms loss_terms(const config::Recipe& recipe) {
  return {.label_smoothing = recipe.label_smoothing_factor, .z_loss_coef = recipe.z_loss_coef};
}

}  // namespace tessera::train
