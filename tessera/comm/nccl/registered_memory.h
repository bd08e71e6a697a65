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
// fewer of the device's multiprocessors; on NVLink switches the switch itself then gathers. NCCL asks for
// memory from ncclMemAlloc: it is one physical piece, which other ranks can map, and each rank's operation
// lies at the same offset from its head. LibTorch's allocator gives slices of segments, which it grows piece
// by piece (expandable_segments), at other offsets on each rank. If some ranks' memory is registered and
// others' is not, an operation is undefined: so either all ranks make such memory together (NcclBackend), or
// none does.
//
// A registration must end before its memory is freed, and memory may be freed only when nothing on the device
// uses it: no allocator orders freed memory by streams here. So a tensor that goes only puts its memory
// aside. It is freed, behind a wait for the device, with the next that is made or with the group: by threads
// that may wait. The watchdog, which lets go of tensors too, may not.
class RegisteredMemory {
 public:
  RegisteredMemory(at::Device device, std::shared_ptr<const NcclLibrary> library, NcclHandle comm);

  // Makes a tensor of bytes [num_bytes], counted as memory of the device (device/device_memory.h). Undefined
  // if the library gives no memory. Tensors may outlive the group.
  at::Tensor make(int64_t num_bytes);
  // Ends all registrations. Call it before the communicator is destroyed, when nothing on the device uses it
  // any more.
  void end();
  // Forgets all registrations, which the abort of the communicator has ended. Waits for nothing, and neither
  // do tensors that go afterwards: the memory is freed with the last of them and of this object.
  void forget();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace tessera::comm::detail
