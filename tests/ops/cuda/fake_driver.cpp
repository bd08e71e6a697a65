// A libcuda.so.1 for machines without a driver: it takes the kernels that cuDNN compiles, and has no device.
#include <cstdint>
#include <cstring>

#include <elf.h>

namespace {

constexpr int kSuccess = 0, kNoDevice = 100;
char last_kernel[512];
uint64_t last_image = 0;

// Returns the FNV-1a hash of an ELF image up to the end of its section headers, which stand last.
uint64_t digest(const void* image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  const auto* const bytes = static_cast<const unsigned char*>(image);
  const uint64_t end = header.e_shoff + uint64_t{header.e_shnum} * header.e_shentsize;
  uint64_t hash = 14695981039346656037U;
  for (uint64_t i = 0; i < end; ++i) hash = (hash ^ bytes[i]) * 1099511628211U;
  return hash;
}

}  // namespace

extern "C" {

// Returns the name of the last kernel that was looked up, "" for none, and forgets it.
const char* fake_driver_kernel() {
  static char told[sizeof last_kernel];
  std::memcpy(told, last_kernel, sizeof told);
  last_kernel[0] = '\0';
  return told;
}

// Returns a digest of the last compiled kernel.
uint64_t fake_driver_image() { return last_image; }

int cuInit(unsigned) { return kNoDevice; }
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
int cuLibraryLoadData(void** library, const void* image, void*, void*, unsigned, void*, void*, unsigned) {
  last_image = digest(image);
  *library = last_kernel;
  return kSuccess;
}
int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  std::strncpy(last_kernel, name, sizeof last_kernel - 1);
  *kernel = library;
  return kSuccess;
}
int cuLibraryUnload(void*) { return kSuccess; }

// Functions that cuDNN looks up, and does not call without a device.
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
