// Memory that gathered parameters take turns in.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "tessera/comm/communicator.h"
#include "tessera/core/device_event.h"

namespace tessera::parallel::detail {

struct GatherSlot {
  at::Tensor bytes;
  DeviceEvent last_read;  // of who had it before
};

// Where the ranks of a shard group share a machine's memory, one copy of a unit's gathered parameters serves
// them all: each rank writes its own rows, and nothing is sent or copied out. On devices every rank has slots
// of its own, into which the rows of all are gathered in place. The units of a model use slots in turn: a
// slot's next user comes after the event that its last reader has left, so memory is neither held for the
// allocator to guess (record_stream) nor waited for by the host. All ranks must take and give back in the
// same order; then they hold the same slots at any time. Memory grows to the slots that are in use at once,
// and two unused ones of each size are kept; of memory that is registered with the device's library
// (Communicator::registered_bytes()) all, as the device must be waited for before it can be freed.
class GatherSlots {
 public:
  explicit GatherSlots(std::shared_ptr<comm::Communicator> group) : group_(std::move(group)) {}

  comm::Communicator& group() { return *group_; }
  // Whether all ranks see what one of them writes: by Communicator::write_shared() only.
  bool are_shared() const { return !has_streams(group_->device()); }
  // On which what goes into slots comes from the host. On a device.
  c10::Stream copy_stream();
  // A slot with what its last user left there, for what is submitted to the current stream from now on. None
  // of no bytes, and on the host where the ranks share no memory. Collective, and waits, where they do and
  // none is free.
  std::optional<GatherSlot> take(int64_t num_bytes);
  // For a slot that this rank, or its current stream, has finished reading.
  void give_back(GatherSlot slot);

 private:
  static constexpr size_t kKept = 2;

  // Undefined where the ranks share no memory.
  at::Tensor make(int64_t num_bytes);

  std::shared_ptr<comm::Communicator> group_;
  std::map<int64_t, std::vector<GatherSlot>> free_;  // by size
  bool is_refused_ = false, has_registered_ = true;  // the same on all ranks
  std::optional<c10::Stream> copy_stream_;
};

}  // namespace tessera::parallel::detail
