#include "tessera/core/pinned_memory.h"

#include <ATen/ATen.h>

#include "tessera/core/device.h"
#include "tessera/core/device_event.h"

namespace tessera {

at::Tensor empty_pinned(at::IntArrayRef sizes, at::ScalarType type, c10::Device device) {
  return at::empty(sizes, on_host(type).pinned_memory(has_streams(device)));
}

}  // namespace tessera
