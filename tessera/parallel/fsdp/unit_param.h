// One parameter of a unit: the module's own tensor, and the memory that comes to it and goes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include "tessera/comm/communicator.h"
#include "tessera/parallel/fully_shard.h"

namespace tessera::parallel::detail {

// What is gathered: the tiles, over the ranks of the shard group, or the secondary shards of a forward, over
// the secondary group.
enum class ShardKind { Primary, Secondary };

// [Note: whole and hollow]
// `parameter` is what the module holds. While the unit is gathered it is `whole`: a storage that is freed and
// filled again in place, since autograd may hold views of it. Otherwise it is `hollow` (hollow.h). Where the
// tile is the parameter itself, there is neither, and nothing to gather.
struct UnitParam {
  // `owned` outlives it. `num_secondary`: ranks of the secondary group. `unit`: for the errors of a hollow
  // parameter.
  UnitParam(const at::Tensor& parameter, ShardedParameter& owned, const comm::Communicator& shard_group,
            int64_t num_secondary, const std::string& unit);

  ShardedParameter* owned;
  at::Tensor parameter, whole, hollow;
  // The elements of the parameter, in row-major order, that each rank of the shard group holds, and each of
  // the secondary group.
  std::vector<comm::ElementRange> pieces, secondary_pieces;
  at::Tensor secondary;  // this rank's, [elements], in the parameter's type; undefined where none is kept
  bool is_tile;
  bool is_trained() const { return owned->requires_grad; }

  at::ScalarType gradient_type = at::kFloat;           // in which ops add to parameter.grad()
  bool has_gradient = false;                           // in the backward that runs now
  std::shared_ptr<torch::autograd::Node> accumulator;  // of gradients; held for its hook

  int64_t num_bytes() const;  // of the whole parameter
  const std::vector<comm::ElementRange>& pieces_of(ShardKind kind) const {
    return kind == ShardKind::Primary ? pieces : secondary_pieces;
  }
  // Whether the tile lies on the host beside the device.
  bool is_offloaded() const { return !is_tile && owned->tile.device() != whole.device(); }
  // What this rank gives.
  at::Tensor shard_of(ShardKind kind) const;

  // Gives `whole` memory of its own, and returns it as a tensor of the same shape: what is written to that is
  // no new version for autograd.
  at::Tensor allocate();
  // Makes num_bytes() of `bytes` from `offset` on the memory of `whole`, which then holds on to all of them.
  void attach(const at::Tensor& bytes, int64_t offset);
  // The module sees what was allocated or attached.
  void show();
  // The module's parameter is hollow, and the memory free.
  void free();
};

}  // namespace tessera::parallel::detail
