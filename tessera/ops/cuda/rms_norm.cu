// The sum of the residual stream and its norm.
#include "tessera/ops/cuda/absmax.cuh"
#include "tessera/ops/cuda/entries.cuh"

namespace tessera::ops::cuda {
namespace {

constexpr int kMaxThreads = 512;

template <class T>
struct Arguments {
  const T *x, *delta;
  const void* weight;
  Type weight_type;
  float eps;
  T *residual, *y;
  float* inverse_rms;
  int64_t rows, width;
  int lanes;  // threads of a row
  bool has_inverse;
  float* largest;  // largest magnitudes of y, if they are looked for
};

// Writes y: the weight times the rounded normalised value.
template <class T, int N, class See>
__device__ void write_scaled(const Arguments<T>& a, const Floats<N>& x, const Floats<N>& weight,
                             float inverse, int64_t at, See& seen) {
  Floats<N> y;
#pragma unroll
  for (int i = 0; i < N; ++i) y.v[i] = weight.v[i] * round_through<T>(x.v[i] * inverse);
  store(a.y + at, y);
  seen.add(y);
}

// One vector of a row's operands.
template <class T, int N>
struct Inputs {
  Packed<T, N> x, delta;

  __device__ void read(const Arguments<T>& a, int64_t at) {
    x = load_packed<N>(a.x + at);
    if (a.delta != nullptr) delta = load_packed<N>(a.delta + at);
  }
  // Returns the elements as they are stored in the residual, and stores them there.
  __device__ Packed<T, N> sum(const Arguments<T>& a, int64_t at) const {
    if (a.delta == nullptr) return x;
    const Floats<N> more = unpack(delta);
    Floats<N> sum = unpack(x);
#pragma unroll
    for (int i = 0; i < N; ++i) sum.v[i] += more.v[i];
    const Packed<T, N> stored = pack<T>(sum);
    store_packed(a.residual + at, stored);
    return stored;
  }
};

template <int N>
__device__ float squares_of(const Floats<N>& x, float sum) {
#pragma unroll
  for (int i = 0; i < N; ++i) sum = fmaf(x.v[i], x.v[i], sum);
  return sum;
}

template <class T>
__device__ float inverse_of(const Arguments<T>& a, float squares, int64_t row, bool writes) {
  const float inverse = 1.0f / sqrtf(squares / static_cast<float>(a.width) + a.eps);
  if (writes) a.inverse_rms[row] = inverse;
  return inverse;
}

// Seen, if a kernel looks for y's largest magnitude, or Unseen.
template <class T, bool kLooks>
using SeeY = std::conditional_t<kLooks, Seen<T>, Unseen>;

// The norm of rows that the registers of their threads hold, kEach vectors a thread. If these are few, the
// weight stays in registers too, and the next row is on its way while one is summed.
template <class T, int kEach, bool kLooks>
__global__ void __launch_bounds__(kMaxThreads, kEach == 1 ? 2 : 1) norm_held_rows(Arguments<T> a) {
  constexpr int N = kVector<T>;
  constexpr bool kHasRoom = kEach == 1;
  TESSERA_SHARED(float, slots, 2 * kWarp);
  RowReduce<float> reduce(slots, a.lanes);
  const int lane = static_cast<int>(threadIdx.x) % a.lanes, group = static_cast<int>(threadIdx.x) / a.lanes;
  const int rows_here = static_cast<int>(blockDim.x) / a.lanes;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * rows_here;
  const auto column = [&](int i) { return (i * a.lanes + lane) * N; };
  const auto holds = [&](int64_t row, int i) { return row < a.rows && column(i) < a.width; };
  Inputs<T, N> next[kEach];
  Floats<N> weight[kEach] = {};
  const auto read = [&](int64_t row) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (holds(row, i)) next[i].read(a, row * a.width + column(i));
    }
  };
  const auto weight_of = [&](int i) {
    return kHasRoom ? weight[i] : load_either<N>(a.weight_type, a.weight, column(i));
  };
  if constexpr (kHasRoom) {
    if (column(0) < a.width) weight[0] = load_either<N>(a.weight_type, a.weight, column(0));
    read(static_cast<int64_t>(blockIdx.x) * rows_here + group);
  }
  SeeY<T, kLooks> seen;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * rows_here; first < a.rows; first += stride) {
    const int64_t row = first + group;
    if (!kHasRoom) read(row);
    Packed<T, N> x[kEach];
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (!holds(row, i)) continue;
      x[i] = next[i].sum(a, row * a.width + column(i));
      squares = squares_of(unpack(x[i]), squares);
    }
    if (kHasRoom) read(row + stride);
    float inverse;
    if (a.has_inverse) {
      inverse = row < a.rows ? a.inverse_rms[row] : 0.0f;
    } else {
      inverse = inverse_of(a, reduce.sum(squares), row, lane == 0 && row < a.rows);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (holds(row, i))
        write_scaled<T>(a, unpack(x[i]), weight_of(i), inverse, row * a.width + column(i), seen);
    }
  }
  if constexpr (kLooks) {
    TESSERA_SHARED(float, of_warps, kWarp);
    seen.write(of_warps, a.largest);
  }
}

// The norm of rows of any width and alignment, a block for each, read twice.
template <class T, bool kLooks>
__global__ void __launch_bounds__(kMaxThreads) norm_any_rows(Arguments<T> a) {
  TESSERA_SHARED(float, slots, 2 * kWarp);
  RowReduce<float> reduce(slots, static_cast<int>(blockDim.x));
  const T* stored = a.delta == nullptr ? a.x : a.residual;
  SeeY<T, kLooks> seen;
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    float inverse;
    if (a.has_inverse) {
      inverse = a.inverse_rms[row];
    } else {
      float squares = 0.0f;
      for (int64_t column = threadIdx.x; column < a.width; column += blockDim.x) {
        Inputs<T, 1> in;
        in.read(a, row * a.width + column);
        squares = squares_of(unpack(in.sum(a, row * a.width + column)), squares);
      }
      inverse = inverse_of(a, reduce.sum(squares), row, threadIdx.x == 0);
    }
    // No barrier is needed: each thread reads what it has written itself.
    for (int64_t column = threadIdx.x; column < a.width; column += blockDim.x) {
      const int64_t at = row * a.width + column;
      write_scaled<T>(a, load<1>(stored + at), load_either<1>(a.weight_type, a.weight, column), inverse, at,
                      seen);
    }
  }
  if constexpr (kLooks) {
    TESSERA_SHARED(float, of_warps, kWarp);
    seen.write(of_warps, a.largest);
  }
}

template <class T, bool kLooks>
int32_t start(Arguments<T> a, const ScaleResult* y_scale, void* stream) {
  constexpr int N = kVector<T>;
  const auto run = [&](auto kernel, int64_t blocks, int threads) {
    return kLooks ? launch_looking({y_scale}, kernel, blocks, threads, stream, a)
                  : launch(kernel, blocks, threads, stream, a);
  };
  const bool is_aligned_all =
      a.width % N == 0 && are_aligned<N>(a.x, a.delta, a.residual, a.y) && is_aligned(a.weight);
  const int64_t vectors = a.width / N;
  if (!is_aligned_all || vectors > 4 * kMaxThreads) {
    return run(norm_any_rows<T, kLooks>, a.rows, block_threads(a.width, 4, kMaxThreads));
  }
  const int64_t each = vectors <= kMaxThreads ? 1 : vectors <= 2 * kMaxThreads ? 2 : 4;
  a.lanes = row_lanes(vectors, each, kMaxThreads);
  const int threads = a.lanes <= kWarp ? 4 * kWarp : a.lanes;
  const int64_t blocks = divided_up(a.rows, threads / a.lanes);
  if (each == 1) {
    // Blocks that all run at once have a next row each to read ahead.
    const auto kernel = norm_held_rows<T, 1, kLooks>;
    const int64_t at_once = blocks_at_once(kernel, threads);
    return run(kernel, blocks < at_once ? blocks : at_once, threads);
  }
  return run(each == 2 ? norm_held_rows<T, 2, kLooks> : norm_held_rows<T, 4, kLooks>, blocks, threads);
}

}  // namespace

int32_t rms_norm(Type type, Type weight_type, const void* x, const void* delta, const void* weight,
                 double eps, void* residual, void* y, float* inverse_rms, int64_t rows, int64_t width,
                 const ScaleResult* y_scale, void* stream) {
  if (width == 0) return cudaSuccess;
  return dispatch_weighted(type, weight_type, [&](auto tag) -> int32_t {
    using T = decltype(tag);
    const Arguments<T> a = {static_cast<const T*>(x),
                            static_cast<const T*>(delta),
                            weight,
                            weight_type,
                            static_cast<float>(eps),
                            static_cast<T*>(residual),
                            static_cast<T*>(y),
                            inverse_rms,
                            rows,
                            width,
                            0,
                            false,
                            largest_of(y_scale)};
    if (y_scale == nullptr) return start<T, false>(a, nullptr, stream);
    if constexpr (std::is_same_v<T, Bf16>) return start<T, true>(a, y_scale, stream);
    return cudaErrorInvalidValue;
  });
}

int32_t rms_norm_scale(Type type, Type weight_type, const void* residual, const void* weight,
                       const float* inverse_rms, void* y, int64_t rows, int64_t width, void* stream) {
  return dispatch_weighted(type, weight_type, [&](auto tag) {
    using T = decltype(tag);
    return start<T, false>(
        {static_cast<const T*>(residual), nullptr, weight, weight_type, 0.0f, nullptr, static_cast<T*>(y),
         const_cast<float*>(inverse_rms), rows, width, 0, true, nullptr},
        nullptr, stream);
  });
}

}  // namespace tessera::ops::cuda
