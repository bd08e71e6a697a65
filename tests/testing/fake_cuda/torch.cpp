// A libtorch_cuda.so without CUDA. It notes when it is opened and when LibTorch first asks for its CUDA
// part. It reports as many devices as FAKE_TORCH_DEVICES says (none if it is not set); with FAKE_TORCH_FULL
// it reports that the first one has no memory left.
#include <cstdlib>
#include <string>

#include <ATen/detail/CUDAHooksInterface.h>

#include "tests/testing/fake_cuda/note.h"

namespace at {
namespace {

[[gnu::constructor]] void opened() {
  const char* setting = std::getenv("PYTORCH_ALLOC_CONF");
  fake_cuda::note((std::string("library opened ") + (setting == nullptr ? "-" : setting)).c_str());
}

// LibTorch makes an object of this name when it first asks for its CUDA part.
struct CUDAHooks : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) { fake_cuda::note("LibTorch asks"); }
  bool hasCUDA() const override { return true; }
  DeviceIndex deviceCount() const override {
    TORCH_CHECK_WITH(OutOfMemoryError, std::getenv("FAKE_TORCH_FULL") == nullptr,
                     "CUDA out of memory. Tried to allocate 2.00 GiB.");
    return static_cast<DeviceIndex>(fake_cuda::number("FAKE_TORCH_DEVICES", 0));
  }
  int getNumGPUs() const override { return deviceCount(); }
  bool isBuilt() const override { return true; }
};

REGISTER_CUDA_HOOKS(CUDAHooks);

}  // namespace
}  // namespace at
