// One parameter of a unit: the module's own tensor, and the memory that it has while the unit is gathered.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include "tessera/comm/communicator.h"
#include "tessera/ops/row_codes.h"
#include "tessera/parallel/fully_shard.h"

namespace tessera::parallel::detail {

// The shards that are gathered: the tiles, over the ranks of the shard group, or the secondary shards of a
// forward, over the secondary group.
enum class ShardKind { Primary, Secondary };

// [Note: whole and hollow]
// `parameter` is the tensor that the module holds. While the unit is gathered it has the storage of `whole`,
// which is freed and filled again in place, since autograd may hold views of it. At other times it is
// `hollow` (hollow.h). If the tile is the parameter itself, all three are undefined and nothing is gathered.
struct UnitParam {
  // `owned` must outlive the object. `num_secondary` is the number of ranks of the secondary group; `unit`
  // names the unit in errors of a hollow parameter.
  UnitParam(const at::Tensor& parameter, ShardedParameter& owned, const comm::Communicator& shard_group,
            int64_t num_secondary, const std::string& unit);

  ShardedParameter* owned;
  at::Tensor parameter, whole, hollow, hollow_gradient;
  // The runs of the parameter's elements, in row-major order, that each rank of the shard group holds, and
  // each rank of the secondary group.
  std::vector<comm::ElementRange> pieces, secondary_pieces;
  // The codes in which tiles and gradients are sent; unset: as they are.
  std::optional<ops::RowCodes> tile_codes, gradient_codes;
  // Returns the codes in which shards of this kind are gathered; null: as they are.
  const ops::RowCodes* codes_of(ShardKind kind) const {
    return kind == ShardKind::Primary && tile_codes ? &*tile_codes : nullptr;
  }
  // This rank's secondary shard, [elements], in the parameter's type; undefined if none is kept.
  at::Tensor secondary;
  bool is_tile;
  bool is_trained() const { return owned->requires_grad; }

  at::ScalarType gradient_type = at::kFloat;           // type in which ops add to parameter.grad()
  bool has_gradient = false;                           // accumulated in the backward that runs now
  std::shared_ptr<torch::autograd::Node> accumulator;  // gradient accumulator; held so that its hook stays

  int64_t num_bytes() const;  // size of the whole parameter
  // Returns codes of `bits` for numbers of type `type` with the parameter's shape; nothing if they are not
  // smaller, or the parameter has fewer than two dims.
  std::optional<ops::RowCodes> make_codes(int bits, at::ScalarType type) const;
  // Returns the bytes in which `numel` elements of a shard of this kind are gathered.
  int64_t gathered_bytes(ShardKind kind, int64_t numel) const;
  const std::vector<comm::ElementRange>& pieces_of(ShardKind kind) const {
    return kind == ShardKind::Primary ? pieces : secondary_pieces;
  }
  // Returns whether the tile lies on the host beside the device.
  bool is_offloaded() const { return !is_tile && owned->tile.device() != whole.device(); }
  // Returns the shard that this rank contributes.
  at::Tensor shard_of(ShardKind kind) const;

  // Gives `whole` memory of its own, without values. Returns that memory as another tensor of the same shape:
  // a write to it does not count as a new version for autograd.
  at::Tensor allocate();
  // Makes the num_bytes() bytes of `bytes` from `offset` on the memory of `whole`, which keeps `bytes` alive.
  void attach(const at::Tensor& bytes, int64_t offset);
  // Puts `whole` in place of the module's parameter, after allocate() or attach().
  void show();
  // Makes the module's parameter hollow and lets go of the memory.
  void free();
};

}  // namespace tessera::parallel::detail
