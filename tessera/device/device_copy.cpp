#include "tessera/device/device_copy.h"

#include <ATen/ATen.h>

#include "tessera/device/host_memory.h"
#include "tessera/device/pinned_memory.h"

namespace tessera {

at::Tensor copy_to(const at::Tensor& x, c10::Device device) {
  // Memory is pinned for CUDA; elsewhere a copy has no reason to wait.
  if (!device.is_cuda() || !is_on_host(x)) return x.to(device);
  return x.pin_memory().to(device, /*non_blocking=*/true);
}

HostCopy::HostCopy(const at::Tensor& x) : values_(x), arrived_(x.device()) {
  if (is_on_host(x)) return;
  // The host would wait for a copy to memory that is not pinned.
  values_ = empty_pinned(x.sizes(), x.scalar_type(), x.device());
  values_.copy_(x, /*non_blocking=*/true);
  arrived_.record();
}

const at::Tensor& HostCopy::wait() {
  arrived_.synchronize();
  return values_;
}

}  // namespace tessera
