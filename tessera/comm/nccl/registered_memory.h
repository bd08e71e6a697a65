// Memory of a device that NCCL uses without buffers of its own in between.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include <ATen/core/Tensor.h>

#include "tessera/comm/nccl/nccl_library.h"

namespace tessera::comm::detail {

// [Note: registered memory]
// An operation on memory that all ranks have registered needs no copies into and out of NCCL's buffers, and
// fewer of the device's units; on NVLink switches the switch itself then gathers. NCCL asks for memory from
// ncclMemAlloc: of one physical piece, which other ranks can map, at whose head each rank's operation has the
// same offset. LibTorch's allocator gives slices of segments, which it grows piece by piece
// (expandable_segments), at other offsets on each rank. An operation in which some ranks' memory is
// registered and others' is not is undefined: so ranks make such memory together (NcclBackend), or none does.
//
// A registration must end before its memory goes, and memory may only go when nothing on the device uses it:
// no allocator keeps freed memory in the order of streams here. So a tensor that goes only puts its memory
// aside. It is freed, behind a wait for the device, with the next that is made or with the group: by threads
// that may wait, which the watchdog, who lets go of tensors too, may not.
class RegisteredMemory {
 public:
  RegisteredMemory(at::Device device, std::shared_ptr<const NcclLibrary> library, NcclHandle comm);

  // As bytes, counted as memory of the device (core/device_memory.h). Undefined where the library gives none.
  // Tensors may outlive the group.
  at::Tensor make(int64_t num_bytes);
  // Before the communicator ends, which nothing uses any more.
  void end();
  // After it was aborted, which has ended the registrations. Waits for nothing, as tensors that go then do
  // not: the memory is freed with the last of them and of this.
  void forget();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace tessera::comm::detail
