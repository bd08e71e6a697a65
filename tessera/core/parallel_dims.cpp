#include "tessera/core/parallel_dims.h"

#include <algorithm>
#include <string>

namespace tessera {

ParallelDims ParallelDims::resolved(int64_t world_size, const Locate& locate) const {
  TESSERA_ASSERT(world_size >= 1, "a world of no ranks");
  struct Size {
    std::string key;
    int64_t value;
  };
  const Size shard = {"dp_shard_size", dp_shard};
  const Size others[] = {{"dp_replicate_size", dp_replicate},
                         {"tensor_parallel_size", tp},
                         {"context_parallel_size", cp},
                         {"pipeline_parallel_size", pp}};
  const auto misfit = [&](const std::string& key) {
    Error error(ErrorKind::Config, "PARALLELISM", key + " does not fit the number of ranks");
    if (locate) locate(error, key);
    std::string got = shard.key + " " + std::to_string(shard.value);
    for (const Size& size : others) {
      if (size.value != 1) got += " x " + size.key + " " + std::to_string(size.value);
    }
    return error.got(got + " and " + std::to_string(world_size) + (world_size == 1 ? " rank" : " ranks"))
        .need("sizes from 1 that multiply to the number of ranks")
        .hint("dp_shard_size: -1 takes the ranks that remain");
  };
  int64_t rest = world_size;
  for (const Size& size : others) {
    if (size.value < 1 || rest % size.value != 0) throw misfit(size.key);
    rest /= size.value;
  }
  if (dp_shard != -1 && dp_shard != rest) throw misfit(shard.key);
  ParallelDims result = *this;
  result.dp_shard = rest;
  const int64_t readers = rest * cp;
  const auto check_divides = [&](const std::string& key, int64_t size) {
    if (size >= 1 && readers % size == 0) return;
    int64_t below = std::min(std::max<int64_t>(size, 1), readers), above = std::min(below, readers);
    while (readers % below != 0) --below;
    while (readers % above != 0) ++above;
    Error error(ErrorKind::Config, "PARALLELISM",
                key + " does not divide the ranks that share parameters out");
    if (locate) locate(error, key);
    throw error
        .got(key + " " + std::to_string(size) + " and dp_shard_size " + std::to_string(rest) +
             " x context_parallel_size " + std::to_string(cp) + " = " + std::to_string(readers))
        .need("a divisor of " + std::to_string(readers))
        .hint(below == above
                  ? key + ": " + std::to_string(below)
                  : "the nearest that work are " + std::to_string(below) + " and " + std::to_string(above));
  };
  check_divides("expert_parallel_size", ep);
  check_divides("zero_hpz_partition_size", hpz);
  return result;
}

}  // namespace tessera
