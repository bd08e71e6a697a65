#include "tessera/core/parallel_dims.h"

#include <string>
#include <vector>

#include "tessera/core/nearest_size.h"

namespace tessera {
namespace {

struct Size {
  const char* key;
  int64_t ParallelDims::*value;
};

// All but dp_shard, which takes what these leave.
constexpr Size kSizes[] = {{"dp_replicate_size", &ParallelDims::dp_replicate},
                           {"tensor_parallel_size", &ParallelDims::tp},
                           {"context_parallel_size", &ParallelDims::cp},
                           {"pipeline_parallel_size", &ParallelDims::pp}};

// Gives the first size that does not divide the ranks that those before it leave, and null if there is none.
// `rest` becomes what all before it leave.
const Size* first_misfit(const ParallelDims& dims, int64_t world_size, int64_t& rest) {
  rest = world_size;
  for (const Size& size : kSizes) {
    const int64_t value = dims.*size.value;
    if (value < 1 || rest % value != 0) return &size;
    rest /= value;
  }
  return nullptr;
}

bool fit(const ParallelDims& dims, int64_t world_size) {
  int64_t rest = 0;
  return first_misfit(dims, world_size, rest) == nullptr && (dims.dp_shard == -1 || dims.dp_shard == rest);
}

// Proposes another value of the size that does not fit, or else another number of ranks.
std::string way_out(ParallelDims dims, const Size& size, int64_t world_size) {
  const std::string other =
      nearest_size_hint(size.key, nearest_sizes(dims.*size.value, world_size, [&](int64_t value) {
                          ParallelDims changed = dims;
                          changed.*size.value = value;
                          return fit(changed, world_size);
                        }));
  if (!other.empty()) return other;
  constexpr int64_t kMostRanks = 65536;
  const std::vector<int64_t> ranks =
      nearest_sizes(world_size, kMostRanks, [&](int64_t number) { return fit(dims, number); });
  if (ranks.empty()) return "dp_shard_size: -1 uses all remaining ranks";
  std::string text = "the sizes fit " + std::to_string(ranks[0]);
  if (ranks.size() > 1) text += " or " + std::to_string(ranks[1]);
  return text + " ranks";
}

}  // namespace

ParallelDims ParallelDims::resolved(int64_t world_size, const Locate& locate) const {
  TESSERA_ASSERT(world_size >= 1, "a world of no ranks");
  const auto misfit = [&](const std::string& key, const std::string& hint) {
    Error error(ErrorKind::Config, "PARALLELISM", key + " does not fit the number of ranks");
    if (locate) locate(error, key);
    std::string got = "dp_shard_size " + std::to_string(dp_shard);
    for (const Size& size : kSizes) {
      const int64_t value = this->*size.value;
      if (value != 1) got += std::string(" x ") + size.key + " " + std::to_string(value);
    }
    return error.got(got + " and " + std::to_string(world_size) + (world_size == 1 ? " rank" : " ranks"))
        .need("sizes of at least 1 whose product is the number of ranks")
        .hint(hint);
  };
  int64_t rest = 0;
  if (const Size* size = first_misfit(*this, world_size, rest))
    throw misfit(size->key, way_out(*this, *size, world_size));
  if (dp_shard != -1 && dp_shard != rest) {
    throw misfit("dp_shard_size",
                 "dp_shard_size: " + std::to_string(rest) + ", or -1 for all remaining ranks");
  }
  ParallelDims result = *this;
  result.dp_shard = rest;
  const int64_t readers = rest * cp;
  const auto check_divides = [&](const std::string& key, int64_t size) {
    if (size >= 1 && readers % size == 0) return;
    Error error(ErrorKind::Config, "PARALLELISM",
                key + " is not a divisor of the number of ranks that shard parameters");
    if (locate) locate(error, key);
    throw error
        .got(key + " " + std::to_string(size) + " and dp_shard_size " + std::to_string(rest) +
             " x context_parallel_size " + std::to_string(cp) + " = " + std::to_string(readers))
        .need("a divisor of " + std::to_string(readers))
        .hint(nearest_size_hint(
            key, nearest_sizes(size, readers, [&](int64_t number) { return readers % number == 0; })));
  };
  check_divides("expert_parallel_size", ep);
  check_divides("zero_hpz_partition_size", hpz);
  if (machine != 0) check_divides("the number of ranks of a machine", machine);
  return result;
}

}  // namespace tessera
