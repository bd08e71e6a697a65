// CUDA for tests, on the CPU: the .cu files are compiled as C++ with this header in front, and their kernels
// run block by block, each thread as a fiber, so that barriers and shuffles mean what they mean on a device.
// One thread runs at a time. Between barriers the order of a block's threads is random and differs from
// launch to launch, so a missing barrier shows in the results. Memory of blocks starts as NaN. The emulation
// ends the program if threads wait for each other in vain, or if a store that is for global memory goes to a
// block's memory.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

struct dim3 {
  dim3(unsigned count = 1) : x(count) {}  // NOLINT: CUDA's is implicit too
  unsigned x;
};
// CUDA's variables of the thread that runs.
inline dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace tessera::emulation {

// The most blocks with which a kernel is started.
inline int64_t max_blocks = 0x7fffffff;
// Seed of the orders in which threads run; the number of the launch changes them too.
inline uint64_t seed = 0;

void run_grid(unsigned blocks, unsigned threads, const std::function<void()>& kernel);
void wait_for_block();
// Returns the bits that the lane `source` of the warp gives; all lanes of `mask` call it together.
uint64_t exchange(uint32_t mask, uint64_t bits, unsigned source);
// Returns memory of the block, the same for every call with this key, at an address that is a multiple of
// `alignment` and of no larger power of two.
void* block_memory(const void* key, size_t bytes, size_t alignment);
// Ends the program where `to` is memory of the block.
void check_is_global(const void* to);

template <class T>
T shuffle_xor(uint32_t mask, T value, int lanes) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = exchange(mask, bits, threadIdx.x % 32 ^ static_cast<unsigned>(lanes));
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace tessera::emulation

#define TESSERA_CUDA_MAX_BLOCKS ::tessera::emulation::max_blocks
#define TESSERA_SHARED(type, name, count)                                   \
  static const char name##_key = 0;                                         \
  auto* const name = static_cast<type*>(::tessera::emulation::block_memory( \
      &name##_key, sizeof(type) * static_cast<size_t>(count), alignof(type)))

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __syncthreads ::tessera::emulation::wait_for_block
#define __shfl_xor_sync ::tessera::emulation::shuffle_xor

struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
template <class T>
void __stwb(T* to, T value) {
  tessera::emulation::check_is_global(to);
  *to = value;
}

enum cudaError_t : int { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "invalid argument";
}
using cudaStream_t = void*;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  cudaStream_t stream;
};
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               const Arguments&... arguments) {
  tessera::emulation::run_grid(config->gridDim.x, config->blockDim.x, [&] { kernel(arguments...); });
  return cudaSuccess;
}

inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount };
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 3;
  return cudaSuccess;
}
template <class... Parameters>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void (*)(Parameters...), int, size_t) {
  *blocks = 1;
  return cudaSuccess;
}

inline float __uint_as_float(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
inline uint32_t __float_as_uint(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
// Divides as a device does: a divisor between 2^126 and 2^128 gives 0.
inline float __fdividef(float a, float b) {
  return std::fabs(b) > 0x1p126f && std::isfinite(b) ? a * 0.0f : a / b;
}
