#include "tessera/device/cuda_devices.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include "tessera/core/cuda_library.h"
#include "tessera/core/strings.h"

namespace tessera {
namespace {

// Keeps the last warning: LibTorch's warnings while it counts devices are its reasons for finding none.
class LastWarning : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { text = first_line(warning.msg()); }
  std::string text;
};

}  // namespace

CudaDevices find_cuda_devices() {
  if (!cuda::open()) return {0, cuda::why_not()};
  LastWarning warning;
  const c10::WarningUtils::WarningHandlerGuard guard(&warning);
  if (!at::hasCUDA()) return {0, "LibTorch was in use before its CUDA part was opened"};
  const auto count = static_cast<int64_t>(at::getNumGPUs());
  if (count > 0) return {count, ""};
  const std::string reason = "LibTorch finds no device that it can use";
  return {0, warning.text.empty() ? reason : reason + ": " + warning.text};
}

}  // namespace tessera
