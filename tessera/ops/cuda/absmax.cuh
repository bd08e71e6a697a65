// The scale for products in e4m3 of a kernel's results, found by the kernel that writes them: each of its
// blocks leaves the largest magnitude of its results, and one scale is made of these. A maximum knows no
// order, so the bits do not depend on the grid.
#pragma once

#include <initializer_list>

#include "tessera/ops/cuda/reduce.cuh"

namespace tessera::ops::cuda {

// The most blocks of a kernel that looks for largest magnitudes.
inline constexpr int64_t kMostLooking = kScaleWorkspace / static_cast<int64_t>(sizeof(float));

// The larger of two magnitudes; NaN stays.
struct Largest {
  __device__ float operator()(float a, float b) const { return a != a || a > b ? a : b; }
};

// The largest magnitude of the numbers that a thread stores as T.
template <class T>
class Seen {
 public:
  // Takes numbers as they are before they are rounded to T: rounding keeps their order.
  template <int N>
  __device__ void add(const Floats<N>& stored) {
#pragma unroll
    for (int i = 0; i < N; ++i) found_ = Largest()(fabsf(stored.v[i]), found_);
  }
  // Writes the largest magnitude of the block to largest[blockIdx.x]. All threads of the block call it.
  // slots: kWarp elements of the block's shared memory, which nothing else uses.
  __device__ void write(float* slots, float* largest) const {
    // A single reduction uses the first half of its slots alone.
    RowReduce<float> reduce(slots, static_cast<int>(blockDim.x));
    const float found = reduce(found_, 0.0f, Largest());
    if (threadIdx.x == 0) largest[blockIdx.x] = round_through<T>(found);
  }

 private:
  float found_ = 0.0f;
};
// Takes the place of Seen if nobody asks for the scale.
struct Unseen {
  template <int N>
  __device__ void add(const Floats<N>&) {}
};

// Enqueues *scale = max(largest, 1e-12) / 448 over all pieces.
int32_t make_scale(const float* largest, int64_t pieces, float* scale, void* stream);

// Returns where a kernel's blocks leave their largest magnitudes; null if no scale is asked for.
inline float* largest_of(const ScaleResult* scale) {
  return scale == nullptr ? nullptr : static_cast<float*>(scale->workspace);
}

// Starts a kernel whose blocks write largest_of() each of the scales that is not null, perhaps of fewer
// blocks than asked for, and then makes these scales.
template <class... Parameters, class... Arguments>
int32_t launch_looking(std::initializer_list<const ScaleResult*> scales, void (*kernel)(Parameters...),
                       int64_t blocks, int threads, void* stream, const Arguments&... arguments) {
  const int64_t most = TESSERA_CUDA_MAX_BLOCKS < kMostLooking ? TESSERA_CUDA_MAX_BLOCKS : kMostLooking;
  const int64_t started = blocks < most ? blocks : most;
  int32_t error = launch(kernel, started, threads, stream, arguments...);
  for (const ScaleResult* scale : scales) {
    if (error == cudaSuccess && scale != nullptr) {
      error = make_scale(largest_of(scale), started, scale->scale, stream);
    }
  }
  return error;
}

// Places for the largest magnitudes of an operation's results.
template <int kResults>
struct LargestOf {
  float* of[kResults];  // null: no scale is asked for
};

// The kernel of map() for an operation that tells what it stores: op.run<N>(i, seen) adds to seen[0 ..
// kResults).
template <int N, class T, class Op>
__global__ void __launch_bounds__(kMapThreads)
    map_looking_kernel(Op op, int64_t groups, int64_t n, LargestOf<Op::kResults> largest) {
  TESSERA_SHARED(float, slots, Op::kResults* kWarp);
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kMapThreads;
  Seen<T> seen[Op::kResults];
  for (int64_t i = thread; i < groups; i += stride) op.template run<N>(i * N, seen);
  for (int64_t i = groups * N + thread; i < n; i += stride) op.template run<1>(i, seen);
#pragma unroll
  for (int r = 0; r < Op::kResults; ++r) {
    if (largest.of[r] != nullptr) seen[r].write(slots + r * kWarp, largest.of[r]);
  }
}

// Does what map() does for such an operation on results of type T, and makes the scales that are not null,
// which are for results in BF16 alone.
template <int N, class T, class Op, class... Scales>
int32_t map_with_scales(const Op& op, int64_t n, bool aligned, void* stream, const Scales*... scales) {
  static_assert(sizeof...(Scales) == Op::kResults, "a scale for each result");
  if ((... && (scales == nullptr))) return map<N>(op, n, aligned, stream);
  if constexpr (std::is_same_v<T, Bf16>) {
    const int64_t groups = aligned ? n / N : 0, rest = n - groups * N;
    return launch_looking({scales...}, map_looking_kernel<N, T, Op>,
                          divided_up(groups > rest ? groups : rest, kMapThreads), kMapThreads, stream, op,
                          groups, n, LargestOf<Op::kResults>{{largest_of(scales)...}});
  }
  return cudaErrorInvalidValue;
}

}  // namespace tessera::ops::cuda
