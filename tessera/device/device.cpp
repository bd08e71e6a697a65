#include "tessera/device/device.h"

#include <string>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "tessera/core/cuda_driver.h"
#include "tessera/core/cuda_library.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/device/cuda_devices.h"
#include "tessera/device/device_event.h"

namespace tessera {
namespace {

Error unusable(const DeviceChoice& choice) {
  return {ErrorKind::Config, "DEVICE", "the device '" + choice.text() + "' cannot be used"};
}

// Warns, once in a process, of a device that lies idle for want of LibTorch's CUDA part. Does nothing if the
// machine has no device.
void tell_idle_device() {
  if (cuda::missing() != cuda::Missing::Library) return;
  static const bool is_told = [] {
    log::warn("computing on the CPU, although this machine has " +
              cuda::describe(cuda::driver().gpus.front()) + ": " + cuda::why_not() +
              ". hint: " + cuda::what_to_do());
    return true;
  }();
  static_cast<void>(is_told);
}

}  // namespace

c10::Device resolve_device(const DeviceChoice& choice, int64_t local_rank) {
  if (choice.kind == DeviceKind::Cpu) return kHost;
  const CudaDevices found = find_cuda_devices();
  if (found.count == 0 && choice.kind == DeviceKind::Auto) {
    tell_idle_device();
    return kHost;
  }
  if (found.count == 0) {
    Error error = unusable(choice);
    error.got(found.why_none).need("NVIDIA's driver, a device, and LibTorch's CUDA part");
    const std::string hint = cuda::what_to_do();
    throw hint.empty() ? error : error.hint(hint);
  }
  if (choice.number >= found.count) {
    throw unusable(choice)
        .got(std::to_string(found.count) + " device(s)")
        .need("cuda:0 to cuda:" + std::to_string(found.count - 1));
  }
  const int64_t index = choice.number < 0 ? local_rank % found.count : choice.number;
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index)};
}

void use_device(c10::Device device) {
  if (has_streams(device)) c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
}

bool has_capability(c10::Device device, int major, int minor) {
  if (!device.is_cuda()) return false;
  const auto& gpus = cuda::driver().gpus;
  const auto index = static_cast<size_t>(device.has_index() ? device.index() : 0);
  if (index >= gpus.size()) return false;
  const cuda::Gpu& gpu = gpus[index];
  return gpu.major > major || (gpu.major == major && gpu.minor >= minor);
}

}  // namespace tessera
