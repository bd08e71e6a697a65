// How the parameters of a unit come to the rank that needs them whole.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/parallel/fsdp/gather_slots.h"
#include "tessera/parallel/fsdp/unit_param.h"

namespace tessera::parallel::detail {

// One gather of one unit, in flight from its making on. All ranks of the shard group start and free theirs in
// the same order.
class Gather {
 public:
  virtual ~Gather() = default;
  // Waits; then every parameter but those that are their tiles has its values in `whole`. Once.
  virtual void finish() = 0;
  // Waits where it is in flight. What the parameters share is free for other units, which the parameters must
  // no longer use.
  virtual void free() = 0;
  // Whether each parameter has memory of its own, which can be freed before the others'.
  virtual bool can_free_one() const = 0;
};

// [Note: ways to gather]
// Ranks of one machine: every rank casts its tiles into a slot of memory that they share, and the storage of
// `whole` is the slot. Ranks on devices: the same with a slot of each rank's own, in which the tiles are then
// gathered in place; tiles that lie on the host come there on a stream of their own, behind what the current
// stream holds, also those of one rank. Ranks of several machines: the tiles are packed, gathered and copied
// out. One rank in another compute type: the tile is cast into the storage, by finish().
//
// Secondary shards (UnitParam::secondary) go the same ways, over their own group. `params` and `slots`, of
// the group, outlive it.
std::unique_ptr<Gather> start_gather(std::vector<UnitParam>& params, ShardKind kind, GatherSlots& slots,
                                     const std::string& hint);

}  // namespace tessera::parallel::detail
