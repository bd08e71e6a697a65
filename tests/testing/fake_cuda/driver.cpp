// A libcuda.so.1 with as many devices as FAKE_CUDA_DEVICES says (one if it is not set). If FAKE_CUDA_INIT
// names an error, it has none and fails with this error.
#include <cstddef>
#include <cstring>

#include "tests/testing/fake_cuda/note.h"

namespace {

[[gnu::constructor]] void opened() { fake_cuda::note("driver opened"); }

constexpr int kNoDevice = 100, kMajor = 75, kMultiprocessors = 16;

}  // namespace

extern "C" {

int cuInit(unsigned) { return fake_cuda::number("FAKE_CUDA_INIT", 0); }

int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}

int cuDeviceGetCount(int* count) {
  *count = fake_cuda::number("FAKE_CUDA_DEVICES", 1);
  return 0;
}

int cuDeviceGet(int* device, int index) {
  *device = index;
  return 0;
}

int cuDeviceGetName(char* name, int size, int) {
  std::strncpy(name, "Fake GPU", static_cast<size_t>(size));
  return 0;
}

int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = size_t{139} << 30;
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == kMajor ? 9 : attribute == kMultiprocessors ? 132 : 0;
  return 0;
}

int cuGetErrorString(int code, const char** text) {
  *text = code == kNoDevice ? "no CUDA-capable device is detected" : "unknown error";
  return 0;
}

}  // extern "C"
