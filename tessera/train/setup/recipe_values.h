// The axes, the device, the types and the terms of the loss that a recipe's keys stand for.
#pragma once

#include <cstdint>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "tessera/config/recipe.h"
#include "tessera/core/parallel_dims.h"
#include "tessera/ops/linear_cross_entropy.h"

namespace tessera::train {

// Returns the axes that the recipe asks for. DDP holds whole parameters, so its dp_shard becomes
// dp_replicate. Throws what config::validate_parallelism() throws.
ParallelDims parallel_dims(const config::Recipe& recipe, int64_t world_size);

// Returns the device that the key `device` names, for this rank of its machine. Throws E-CONFIG-DEVICE, at
// the key's line, where there is none.
at::Device device_of(const DeviceChoice& device, const config::KeyPlaces& places);

// Dtypes of trained parameters: as the optimizer updates them, and as the forward and backward use them.
// Auto, which a training run replaces first (compute_type.h), stands for Float32.
struct RunTypes {
  at::ScalarType stored, compute;
};
RunTypes run_types(const config::PrecisionConfig& keys);

// Returns the terms that the recipe adds to the loss of a position.
ops::LossTerms loss_terms(const config::Recipe& recipe);

}  // namespace tessera::train
