// Tensors on their way to a device, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include "tessera/device/device_event.h"

namespace tessera {

// Gives a copy of `x` on `device`, of its type and shape, or `x` itself if it lies there. The host does not
// wait for a copy to a GPU: data on the host goes through pinned memory, and is there for what the current
// stream runs next.
at::Tensor copy_to(const at::Tensor& x, c10::Device device);

// A copy of `x` on its way to the host, behind what the current stream of its device runs now; `x` itself if
// it lies on the host.
class HostCopy {
 public:
  explicit HostCopy(const at::Tensor& x);
  // Waits until the copy is there, but for nothing that was submitted after it. Returns the tensor on the
  // host.
  const at::Tensor& wait();

 private:
  at::Tensor values_;
  DeviceEvent arrived_;
};

}  // namespace tessera
