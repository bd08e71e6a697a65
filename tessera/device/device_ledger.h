// The memory ledger (memory_ledger.h) over the tensors of a GPU in place of the host's.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace tessera {

// While it lives, the ledger counts what LibTorch's allocator of `device` hands out and takes back, by the
// category of the scope that asks (memory_scope.h), and nothing of the host. All counts begin at zero. It
// holds for the thread that makes it and for the backwards that this thread starts. Only one may live at a
// time.
class DeviceLedger {
 public:
  explicit DeviceLedger(c10::Device device);
  ~DeviceLedger();
  DeviceLedger(const DeviceLedger&) = delete;
  DeviceLedger& operator=(const DeviceLedger&) = delete;

 private:
  const c10::DebugInfoGuard guard_;
};

}  // namespace tessera
