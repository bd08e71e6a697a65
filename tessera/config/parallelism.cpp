#include "tessera/config/parallelism.h"

#include <string>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/core/remaining_ranks.h"

namespace tessera::config {
namespace {

Error parallelism_error(const Recipe& recipe, const char* key, std::string what) {
  Error error(ErrorKind::Config, "PARALLELISM", std::move(what));
  const auto it = recipe.key_places.find(key);
  if (it == recipe.key_places.end()) return error.at(recipe.source_file);
  return error.at(it->second.file, it->second.line, it->second.column);
}

}  // namespace

ParallelSizes validate_parallelism(const Recipe& recipe, int64_t world_size) {
  TESSERA_ASSERT(world_size >= 1, "a world of no ranks");
  const std::string world = std::to_string(world_size) + (world_size == 1 ? " rank" : " ranks");
  const std::string need = "dp_replicate_size x dp_shard_size x tensor_parallel_size = number of ranks";
  const int64_t replicate = recipe.dp_replicate_size, tp = recipe.tensor_parallel_size;
  for (const auto& [key, size] :
       {std::pair("tensor_parallel_size", tp), std::pair("dp_replicate_size", replicate)}) {
    if (size <= world_size && world_size % size == 0) continue;
    throw parallelism_error(recipe, key, std::string(key) + " does not divide the number of ranks")
        .got(std::string(key) + " " + std::to_string(size) + " and " + world)
        .need(need);
  }
  const auto rest = remaining_ranks(world_size, {tp, replicate});
  const int64_t shard = recipe.dp_shard_size == -1 ? rest.value_or(0) : recipe.dp_shard_size;
  if (shard != rest) {
    throw parallelism_error(recipe, "dp_shard_size",
                            "the parallel sizes do not multiply to the number of ranks")
        .got("dp_replicate_size " + std::to_string(replicate) +
             (recipe.dp_shard_size == -1 ? "" : " x dp_shard_size " + std::to_string(shard)) +
             (tp == 1 ? "" : " x tensor_parallel_size " + std::to_string(tp)) + " and " + world)
        .need(need)
        .hint("dp_shard_size: -1 takes the ranks that remain");
  }
  const int64_t readers = replicate * shard;
  const int64_t batch = recipe.micro_batch_size * recipe.gradient_accumulation_steps * readers;
  if (recipe.train_batch_size > 0 && recipe.train_batch_size != batch) {
    throw parallelism_error(recipe, "train_batch_size", "train_batch_size does not fit the other sizes")
        .got("micro_batch_size " + std::to_string(recipe.micro_batch_size) +
             " x gradient_accumulation_steps " + std::to_string(recipe.gradient_accumulation_steps) + " x " +
             std::to_string(readers) + (readers == 1 ? " rank = " : " ranks = ") + std::to_string(batch))
        .need(std::to_string(recipe.train_batch_size));
  }
  return {replicate, shard, tp};
}

}  // namespace tessera::config
