#include "tessera/core/device.h"

#include <ATen/Context.h>

#include "tessera/core/error.h"

namespace tessera {

c10::Device resolve_device(DeviceChoice choice, int64_t local_rank) {
  const auto count = at::hasCUDA() ? static_cast<int64_t>(at::getNumGPUs()) : 0;
  if (choice == DeviceChoice::Cuda && count == 0) {
    throw Error(ErrorKind::Config, "DEVICE", "the device 'cuda' cannot be used")
        .got(at::hasCUDA() ? "no CUDA device on this machine" : "a LibTorch without CUDA")
        .need("cpu or auto");
  }
  if (choice == DeviceChoice::Cpu || count == 0) return kHost;
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(local_rank % count)};
}

}  // namespace tessera
