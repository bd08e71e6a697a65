// Gathers the parameters of a unit on the rank that needs them whole.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/parallel/fsdp/gather_slots.h"
#include "tessera/parallel/fsdp/unit_param.h"

namespace tessera::parallel::detail {

// One gather of one unit; it is in flight once it is made. All ranks of the shard group must start and free
// their gathers in the same order.
class Gather {
 public:
  virtual ~Gather() = default;
  // Waits for the gather; afterwards every parameter that is not its own tile has its values in `whole`. Call
  // it once.
  virtual void finish() = 0;
  // Waits for the gather if it is in flight, then releases the shared buffer to other units; the parameters
  // must not be used afterwards.
  virtual void free() = 0;
  // Returns whether each parameter has memory of its own, which can be freed before that of the others.
  virtual bool can_free_one() const = 0;
};

// [Note: ways to gather]
//  - Ranks of one machine: every rank casts its tiles into a slot of memory that they share, and the storage
//    of `whole` is the slot. Nothing is sent.
//  - Ranks on devices: every rank has a slot of its own, casts its tiles into their places there, and the
//    tiles of all ranks are gathered in place. Tiles that lie on the host are copied to the slot on a stream
//    of their own, behind what the current stream holds, also in a group of one rank.
//  - Ranks of several machines: the tiles are packed into a buffer, gathered, and copied out into memory of
//    each parameter's own.
//  - Parameters that are sent in codes (UnitParam::tile_codes): as in the last way, with codes in the buffer,
//    also on devices. In memory that ranks share, every rank writes what becomes of its tiles by coding and
//    decoding, so the values are the same to the bit.
//  - One rank that computes in another type: finish() casts the tile into the parameter's own memory.
//
// Secondary shards (UnitParam::secondary) are gathered in the same ways over their own group. `slots` are
// those of the group over which is gathered; `params` and `slots` must outlive the gather. Collective over
// that group.
std::unique_ptr<Gather> start_gather(std::vector<UnitParam>& params, ShardKind kind, GatherSlots& slots,
                                     const std::string& hint);

}  // namespace tessera::parallel::detail
