// Shards the model of a recipe and gives it its values, so that it is ready to train.
#pragma once

#include <memory>

#include "tessera/config/recipe.h"
#include "tessera/models/common/pipeline.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/parallel/fully_shard.h"
#include "tessera/train/setup/plan_model.h"

namespace tessera::train {

// A sharded model with its values, ready to train.
struct TrainedModel : ModelSetup {
  std::unique_ptr<parallel::ShardedModel> sharded;
  std::unique_ptr<models::StagedModel> pipeline;  // null where each rank runs the whole model
};

// Parallelises a planned model, and only then allocates this rank's tiles and fills them from the plan's
// source: the adapter's files where the recipe continues one, then the model's, then random values. The
// second form also plans the model. Collective. Throws what plan_model() throws.
TrainedModel set_up_model(const config::Recipe& recipe, PlannedModel planned,
                          const parallel::DeviceMesh& mesh);
TrainedModel set_up_model(const config::Recipe& recipe, const parallel::DeviceMesh& mesh);

}  // namespace tessera::train
