// Memory in which gathered parameters take turns.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "tessera/comm/communicator.h"
#include "tessera/device/device_event.h"

namespace tessera::parallel::detail {

struct GatherSlot {
  at::Tensor bytes;
  DeviceEvent last_read;  // passed when the slot's last user has read it
};

// If the ranks of a shard group share a machine's memory, one copy of a unit's gathered parameters serves
// them all: each rank writes its own rows, and nothing is sent or copied out. On devices every rank has slots
// of its own, into which the rows of all are gathered in place.
//
// The units of a model use slots in turn. On a device a slot's next user is ordered behind the event that its
// last reader left, so the host does not wait, and the memory need not be held until the allocator learns
// that its readers are done (record_stream). All ranks must take and give back in the same order, so that
// they hold the same slots at any time. See [Note: who may touch a slot, and when] in gather.cpp.
//
// Memory grows to the slots that are in use at once. Two unused slots of each size are kept; memory that is
// registered with the device's library (Communicator::registered_bytes()) is all kept, as the host would have
// to wait for the device before it can be freed.
class GatherSlots {
 public:
  explicit GatherSlots(std::shared_ptr<comm::Communicator> group) : group_(std::move(group)) {}

  comm::Communicator& group() { return *group_; }
  // Returns whether all ranks see what one of them writes. They must then write through
  // Communicator::write_shared() only.
  bool are_shared() const { return !has_streams(group_->device()); }
  // Returns the stream on which tiles are copied from the host into slots. On devices only.
  c10::Stream copy_stream();
  // Returns a slot of num_bytes bytes. It still holds the values of its last user, and work that is submitted
  // to the current stream from now on may use it. Returns nothing for 0 bytes and, on the host, if the ranks
  // share no memory. If no slot of this size is free, makes one; if its memory is shared or registered, that
  // is collective and waits for the other ranks.
  std::optional<GatherSlot> take(int64_t num_bytes);
  // Takes back a slot that this rank, or what its current stream holds, has finished reading.
  void give_back(GatherSlot slot);

 private:
  static constexpr size_t kKept = 2;

  // Allocates memory for a slot. Undefined if it should be shared and the ranks share none.
  at::Tensor make(int64_t num_bytes);

  std::shared_ptr<comm::Communicator> group_;
  std::map<int64_t, std::vector<GatherSlot>> free_;  // unused slots, by size in bytes
  // is_refused_: the ranks share no memory. has_registered_: the device has registered memory, as far as is
  // known. Both are the same on all ranks.
  bool is_refused_ = false, has_registered_ = true;
  std::optional<c10::Stream> copy_stream_;
};

}  // namespace tessera::parallel::detail
