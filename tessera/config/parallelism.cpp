#include "tessera/config/parallelism.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "tessera/core/error.h"

namespace tessera::config {

namespace {

// Refuses codes for messages that a run of several ranks does not send.
void check_codes(const Recipe& recipe, const ParallelDims& dims, int64_t world_size) {
  const bool is_cut = dims.dp_shard * dims.cp > 1 && recipe.zero_stage != ZeroStage::Ddp;
  if (is_cut || world_size == 1) return;
  for (const auto& [key, is_set, sent] :
       {std::tuple("zero_quantized_weights", recipe.zero_quantized_weights,
                   "parameters as they are gathered"),
        std::tuple("zero_quantized_gradients", recipe.zero_quantized_gradients,
                   "gradients as they are summed for the ranks that hold their parameters")}) {
    if (!is_set) continue;
    throw recipe.error("PARALLELISM", std::string(key) + " compresses " + sent, {key})
        .got("zero_stage " + std::to_string(static_cast<int>(recipe.zero_stage)) + " and dp_shard_size " +
             std::to_string(dims.dp_shard) + ", with which each rank has its parameters whole")
        .need("zero_stage 1, 2 or 3 and several ranks along dp_shard_size or context_parallel_size")
        .hint("shard parameters over the slow link, or leave " + std::string(key) + " out");
  }
}

}  // namespace

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
        .error("PARALLELISM", "experts are divided over ranks that shard parameters",
               {"expert_parallel_size"})
        .got("expert_parallel_size " + std::to_string(dims.ep) +
             " and zero_stage 0, with which each rank has all parameters")
        .need("zero_stage 1, 2 or 3")
        .hint("zero_stage: 1 sends the same amount and needs less memory");
  }
  if (dims.hpz > 1 && recipe.zero_stage != ZeroStage::Zero3) {
    throw recipe
        .error("PARALLELISM",
               "zero_hpz_partition_size decides from which ranks the backward gathers parameters",
               {"zero_hpz_partition_size"})
        .got("zero_hpz_partition_size " + std::to_string(dims.hpz) + " and zero_stage " +
             std::to_string(static_cast<int>(recipe.zero_stage)) +
             ", with which they are gathered once per step")
        .need("zero_stage 3")
        .hint("leave zero_hpz_partition_size out");
  }
  check_codes(recipe, dims, world_size);
  const Recipe accumulating = with_accumulation(recipe, dims.dp_replicate * dims.dp_shard);
  const int64_t micro_batches =
      std::max(accumulating.gradient_accumulation_steps, recipe.pipeline_microbatches);
  if (recipe.gradient_noise_steps > 0 && micro_batches < 2) {
    throw recipe
        .error("PARALLELISM", "the noise of a gradient is measured between the micro-batches of a step",
               {"gradient_noise_steps"})
        .got("one micro-batch on each rank")
        .need("gradient_accumulation_steps of at least 2")
        .hint("halve micro_batch_size and double gradient_accumulation_steps: the step stays the same");
  }
  return dims;
}

Recipe for_one_reader(Recipe recipe) {
  if (recipe.global_batch_size > 0) {
    recipe.gradient_accumulation_steps =
        std::max<int64_t>(1, recipe.global_batch_size / recipe.micro_batch_size);
  }
  return recipe;
}

Recipe with_accumulation(Recipe recipe, int64_t readers) {
  const int64_t total = recipe.global_batch_size, at_once = recipe.micro_batch_size * readers;
  if (total == 0) return recipe;
  const bool is_given = recipe.key_places.contains("gradient_accumulation_steps");
  const auto refusal = [&](const std::string& what) {
    Error error = recipe.error("PARALLELISM", what, {"global_batch_size"});
    const std::string rank_count = std::to_string(readers) + (readers == 1 ? " rank" : " ranks");
    const std::string accumulation =
        is_given ? " x gradient_accumulation_steps " + std::to_string(recipe.gradient_accumulation_steps)
                 : "";
    error.got("micro_batch_size " + std::to_string(recipe.micro_batch_size) + accumulation + " x " +
              rank_count + " = " +
              std::to_string(is_given ? at_once * recipe.gradient_accumulation_steps : at_once));
    return error;
  };
  if (is_given && at_once * recipe.gradient_accumulation_steps != total)
    throw refusal("global_batch_size does not match the other sizes").need(std::to_string(total));
  if (total % at_once != 0) {
    throw refusal("global_batch_size is not a multiple of the sequences that the ranks process at once")
        .need("a divisor of " + std::to_string(total));
  }
  recipe.gradient_accumulation_steps = total / at_once;
  if (recipe.update_in_backward && recipe.gradient_accumulation_steps > 1) {
    throw refusal("update_in_backward needs steps of one micro-batch on each rank")
        .need("micro_batch_size " + std::to_string(total / readers));
  }
  const int64_t parts = recipe.pipeline_microbatches, rows = total / readers;
  if (parts > 0 && rows % parts != 0) {
    throw recipe
        .error("RANGE", "the sequences of a step cannot be divided into this many micro-batches",
               {"pipeline_microbatches"})
        .got(std::to_string(parts))
        .need("a divisor of " + std::to_string(rows) + ", the share of a pipeline in global_batch_size");
  }
  return recipe;
}

Recipe for_one_rank(Recipe recipe) {
  const Recipe defaults;
  for (const auto size :
       {&Recipe::dp_replicate_size, &Recipe::dp_shard_size, &Recipe::context_parallel_size,
        &Recipe::tensor_parallel_size, &Recipe::pipeline_parallel_size, &Recipe::pipeline_stages_per_rank,
        &Recipe::pipeline_microbatches, &Recipe::expert_parallel_size, &Recipe::zero_hpz_partition_size}) {
    recipe.*size = defaults.*size;
  }
  recipe.global_batch_size = defaults.global_batch_size;
  recipe.pipeline_schedule = defaults.pipeline_schedule;
  recipe.pipeline_split.clear();
  recipe.pipeline_split_by = defaults.pipeline_split_by;
  recipe.zero_stage = defaults.zero_stage;
  recipe.zero_quantized_weights = recipe.zero_quantized_gradients = false;
  return recipe;
}

}  // namespace tessera::config
