// Launches: the one place that starts kernels, and the kernel that runs an operation on every element.
#pragma once

#include "tessera/ops/cuda/vectors.cuh"

// Declares an array in the shared memory of a kernel's block. (The emulation of the tests has another
// definition.)
#ifndef TESSERA_SHARED
#define TESSERA_SHARED(type, name, count) __shared__ type name[count]
#endif
// The most blocks of a grid. (The emulation has less, so that the loops over a grid's strides run.)
#ifndef TESSERA_CUDA_MAX_BLOCKS
#define TESSERA_CUDA_MAX_BLOCKS \
  int64_t { 0x7fffffff }
#endif

namespace tessera::ops::cuda {

// Starts `kernel` on at most TESSERA_CUDA_MAX_BLOCKS of `blocks` blocks: kernels stride over the rest. Does
// nothing if there is no block.
template <class... Parameters, class... Arguments>
int32_t launch(void (*kernel)(Parameters...), int64_t blocks, int threads, void* stream,
               const Arguments&... arguments) {
  if (blocks <= 0) return cudaSuccess;
  const int64_t most = TESSERA_CUDA_MAX_BLOCKS;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks < most ? blocks : most));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = static_cast<cudaStream_t>(stream);
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

// Returns how many blocks of a kernel the current device runs at once; the most of a grid if it does not say.
template <class... Parameters>
int64_t blocks_at_once(void (*kernel)(Parameters...), int threads) {
  int device = 0, multiprocessors = 0, each = 0;
  const bool is_known =
      cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device) == cudaSuccess &&
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, 0) == cudaSuccess;
  const int64_t blocks = static_cast<int64_t>(multiprocessors) * each;
  return is_known && blocks > 0 ? blocks : TESSERA_CUDA_MAX_BLOCKS;
}

inline int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline bool is_aligned(const void* pointer, int bytes = 16) {
  return reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(bytes) == 0;
}
// Tells whether groups of N elements of each can be accessed at once. Null counts as aligned.
template <int N, class... T>
bool are_aligned(const T*... pointers) {
  return (... && is_aligned(pointers, N * sizeof(T) < 16 ? N * static_cast<int>(sizeof(T)) : 16));
}

inline constexpr int kMapThreads = 256;

// Calls op.run<N>(i) for the elements i .. i + N - 1 of `groups` groups, then op.run<1>(i) for the rest of n.
template <int N, class Op>
__global__ void __launch_bounds__(kMapThreads) map_kernel(Op op, int64_t groups, int64_t n) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kMapThreads;
  for (int64_t i = thread; i < groups; i += stride) op.template run<N>(i * N);
  for (int64_t i = groups * N + thread; i < n; i += stride) op.template run<1>(i);
}

// Runs op on n elements: by N where `aligned`, else one by one.
template <int N, class Op>
int32_t map(const Op& op, int64_t n, bool aligned, void* stream) {
  const int64_t groups = aligned ? n / N : 0, rest = n - groups * N;
  return launch(map_kernel<N, Op>, divided_up(groups > rest ? groups : rest, kMapThreads), kMapThreads,
                stream, op, groups, n);
}

// Calls f(T()) for F32 and BF16; returns cudaErrorInvalidValue for another type.
template <class F>
int32_t dispatch(Type type, const F& f) {
  if (type == Type::F32) return f(float());
  if (type == Type::BF16) return f(Bf16());
  return cudaErrorInvalidValue;
}
// Does what dispatch() does if another operand's type is F32 or BF16 as well.
template <class F>
int32_t dispatch_weighted(Type type, Type weight_type, const F& f) {
  return weight_type == Type::F32 || weight_type == Type::BF16 ? dispatch(type, f) : cudaErrorInvalidValue;
}
// Does what dispatch() does, for F16 too.
template <class F>
int32_t dispatch_stored(Type type, const F& f) {
  return type == Type::F16 ? f(Half()) : dispatch(type, f);
}

}  // namespace tessera::ops::cuda
