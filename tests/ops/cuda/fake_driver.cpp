// A libcuda.so.1 to which cuDNN may give the kernels that it compiles, on a machine without a driver. There
// is no device.
#include <cstring>

namespace {

constexpr int kSuccess = 0, kNoDevice = 100;
char last_kernel[512];

}  // namespace

extern "C" {

// The name of the last kernel that was looked up; "" for none. Forgets it.
const char* fake_driver_kernel() {
  static char told[sizeof last_kernel];
  std::memcpy(told, last_kernel, sizeof told);
  last_kernel[0] = '\0';
  return told;
}

int cuInit(unsigned) { return kNoDevice; }
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
int cuLibraryLoadData(void** library, const void*, void*, void*, unsigned, void*, void*, unsigned) {
  *library = last_kernel;
  return kSuccess;
}
int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  std::strncpy(last_kernel, name, sizeof last_kernel - 1);
  *kernel = library;
  return kSuccess;
}
int cuLibraryUnload(void*) { return kSuccess; }

// What cuDNN looks for, and does not call without a device.
#define TESSERA_NOT_CALLED(name) \
  int name() { return kNoDevice; }
TESSERA_NOT_CALLED(cuCtxGetCurrent)
TESSERA_NOT_CALLED(cuCtxGetLimit)
TESSERA_NOT_CALLED(cuCtxPopCurrent)
TESSERA_NOT_CALLED(cuCtxPushCurrent)
TESSERA_NOT_CALLED(cuDeviceGet)
TESSERA_NOT_CALLED(cuDeviceGetCount)
TESSERA_NOT_CALLED(cuGetErrorName)
TESSERA_NOT_CALLED(cuGetErrorString)
TESSERA_NOT_CALLED(cuKernelGetAttribute)
TESSERA_NOT_CALLED(cuKernelSetAttribute)
TESSERA_NOT_CALLED(cuLaunchCooperativeKernel)
TESSERA_NOT_CALLED(cuLaunchKernel)
TESSERA_NOT_CALLED(cuLaunchKernelEx)
TESSERA_NOT_CALLED(cuLibraryLoadFromFile)
TESSERA_NOT_CALLED(cuLinkAddData)
TESSERA_NOT_CALLED(cuLinkComplete)
TESSERA_NOT_CALLED(cuLinkCreate)
TESSERA_NOT_CALLED(cuLinkDestroy)
TESSERA_NOT_CALLED(cuOccupancyMaxPotentialClusterSize)
TESSERA_NOT_CALLED(cuStreamGetCtx)
#undef TESSERA_NOT_CALLED

}  // extern "C"
