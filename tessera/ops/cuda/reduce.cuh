// Sums over the threads of a warp and of a block, always in one order.
#pragma once

#include "tessera/ops/cuda/launch.cuh"

namespace tessera::ops::cuda {

inline constexpr int kWarp = 32;

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

// Combines x over groups of `lanes` successive lanes, a power of two. Every lane of the warp takes part, and
// has the result.
template <class Combine>
__device__ auto shuffled(float x, int lanes, const Combine& combine) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) x = combine(x, __shfl_xor_sync(~0u, x, offset));
  return x;
}
template <class Combine>
__device__ auto shuffled(double x, int lanes, const Combine& combine) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) x = combine(x, __shfl_xor_sync(~0u, x, offset));
  return x;
}

// Reductions over the threads that share a row: a power of two of at most a warp, or whole blocks, whose
// threads are whole warps. All threads of the block call it, equally often.
template <class T>
class RowReduce {
 public:
  // slots: 2 * kWarp of the block's shared memory. lanes: threads of a row.
  __device__ RowReduce(T* slots, int lanes) : slots_(slots), lanes_(lanes) {}

  // Returns the combination of all threads' x, which must hold combine(neutral, x) == x.
  template <class Combine>
  __device__ T operator()(T x, T neutral, const Combine& combine) {
    if (lanes_ <= kWarp) return shuffled(x, lanes_, combine);
    // Two sets of slots are used by turns: a thread that writes one again has passed a barrier after all
    // threads read it.
    T* slots = slots_ + turn_ * kWarp;
    turn_ ^= 1;
    x = shuffled(x, kWarp, combine);
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    if (lane == 0) slots[threadIdx.x / kWarp] = x;
    __syncthreads();
    return shuffled(lane < static_cast<int>(blockDim.x) / kWarp ? slots[lane] : neutral, kWarp, combine);
  }
  __device__ T sum(T x) { return (*this)(x, T(0), Sum()); }

 private:
  T* slots_;
  int lanes_, turn_ = 0;
};

// Returns how many threads share a row of `vectors` accesses if each takes at most `most_each`: a power of
// two up to a warp, else whole warps, at most `most_threads`.
inline int row_lanes(int64_t vectors, int64_t most_each, int most_threads) {
  int lanes = 1;
  while (lanes < kWarp && lanes < vectors) lanes *= 2;
  if (vectors <= kWarp) return lanes;
  const int64_t wanted = divided_up(divided_up(vectors, most_each), kWarp) * kWarp;
  return static_cast<int>(wanted < most_threads ? wanted : most_threads);
}

// Returns the number of threads for rows that have a block each: row_lanes(), but at least a warp.
inline int block_threads(int64_t vectors, int64_t most_each, int most_threads) {
  const int lanes = row_lanes(vectors, most_each, most_threads);
  return lanes < kWarp ? kWarp : lanes;
}

}  // namespace tessera::ops::cuda
