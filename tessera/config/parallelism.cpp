#include "tessera/config/parallelism.h"

#include <string>

#include "tessera/core/error.h"

namespace tessera::config {

ParallelDims validate_parallelism(const Recipe& recipe, int64_t world_size) {
  if (recipe.device.number >= 0 && world_size > 1)
    throw one_process_only(recipe.device, world_size).at(recipe.place_of({"device"}));
  ParallelDims dims;
  dims.dp_replicate = recipe.dp_replicate_size;
  dims.dp_shard = recipe.dp_shard_size;
  dims.tp = recipe.tensor_parallel_size;
  dims.cp = recipe.context_parallel_size;
  dims.pp = recipe.pipeline_parallel_size;
  dims.ep = recipe.expert_parallel_size;
  dims.hpz = recipe.zero_hpz_partition_size;
  dims = dims.resolved(world_size,
                       [&](Error& error, const std::string& key) { error.at(recipe.place_of({key})); });
  if (dims.ep > 1 && recipe.zero_stage == ZeroStage::Ddp) {
    throw recipe
        .error("PARALLELISM", "experts are spread over ranks that share parameters out",
               {"expert_parallel_size"})
        .got("expert_parallel_size " + std::to_string(dims.ep) + " and zero_stage 0, where each rank has all")
        .need("zero_stage 1, 2 or 3")
        .hint("zero_stage: 1 sends as much and keeps less");
  }
  if (dims.hpz > 1 && recipe.zero_stage != ZeroStage::Zero3) {
    throw recipe
        .error("PARALLELISM", "zero_hpz_partition_size is where the backward gathers the parameters from",
               {"zero_hpz_partition_size"})
        .got("zero_hpz_partition_size " + std::to_string(dims.hpz) + " and zero_stage " +
             std::to_string(static_cast<int>(recipe.zero_stage)) + ", which gathers them once a step")
        .need("zero_stage 3")
        .hint("leave zero_hpz_partition_size out");
  }
  const int64_t readers = dims.dp_replicate * dims.dp_shard;
  const int64_t batch = recipe.micro_batch_size * recipe.gradient_accumulation_steps * readers;
  if (recipe.train_batch_size > 0 && recipe.train_batch_size != batch) {
    throw recipe.error("PARALLELISM", "train_batch_size does not fit the other sizes", {"train_batch_size"})
        .got("micro_batch_size " + std::to_string(recipe.micro_batch_size) +
             " x gradient_accumulation_steps " + std::to_string(recipe.gradient_accumulation_steps) + " x " +
             std::to_string(readers) + (readers == 1 ? " rank = " : " ranks = ") + std::to_string(batch))
        .need(std::to_string(recipe.train_batch_size));
  }
  return dims;
}

Recipe for_one_rank(Recipe recipe) {
  const Recipe defaults;
  for (const auto size :
       {&Recipe::dp_replicate_size, &Recipe::dp_shard_size, &Recipe::context_parallel_size,
        &Recipe::tensor_parallel_size, &Recipe::pipeline_parallel_size, &Recipe::pipeline_stages_per_rank,
        &Recipe::pipeline_microbatches, &Recipe::expert_parallel_size, &Recipe::zero_hpz_partition_size,
        &Recipe::train_batch_size}) {
    recipe.*size = defaults.*size;
  }
  recipe.pipeline_schedule = defaults.pipeline_schedule;
  recipe.pipeline_split.clear();
  recipe.pipeline_split_by = defaults.pipeline_split_by;
  recipe.zero_stage = defaults.zero_stage;
  return recipe;
}

}  // namespace tessera::config
