#include "tessera/core/device_copy.h"

#include <ATen/ATen.h>

#include "tessera/core/host_memory.h"

namespace tessera {

at::Tensor copy_to(const at::Tensor& x, c10::Device device) {
  // Memory is pinned for CUDA; elsewhere a copy has no reason to wait.
  if (!device.is_cuda() || !is_on_host(x)) return x.to(device);
  return x.pin_memory().to(device, /*non_blocking=*/true);
}

}  // namespace tessera
