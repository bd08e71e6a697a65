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
__device__ void write_scaled(const Arguments<T>& a, const Floats<N>& x, float inverse, int64_t row,
                             int64_t column, See& seen) {
  const Floats<N> weight = load_either<N>(a.weight_type, a.weight, column);
  Floats<N> y;
#pragma unroll
  for (int i = 0; i < N; ++i) y.v[i] = weight.v[i] * round_through<T>(x.v[i] * inverse);
  store(a.y + row * a.width + column, y);
  seen.add(y);
}

// Returns the row's elements from `column` on, as they are stored in the residual, and stores them there.
template <int N, class T>
__device__ Packed<T, N> read_sum(const Arguments<T>& a, int64_t row, int64_t column) {
  const int64_t at = row * a.width + column;
  Packed<T, N> x = load_packed<N>(a.x + at);
  if (a.delta == nullptr) return x;
  const Floats<N> delta = load<N>(a.delta + at);
  Floats<N> sum = unpack(x);
#pragma unroll
  for (int i = 0; i < N; ++i) sum.v[i] += delta.v[i];
  x = pack<T>(sum);
  store_packed(a.residual + at, x);
  return x;
}

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

// The norm of rows that the registers of their threads hold, kEach vectors a thread.
template <class T, int kEach, bool kLooks>
__global__ void __launch_bounds__(kMaxThreads) norm_held_rows(Arguments<T> a) {
  constexpr int N = kVector<T>;
  TESSERA_SHARED(float, slots, 2 * kWarp);
  RowReduce<float> reduce(slots, a.lanes);
  const int lane = static_cast<int>(threadIdx.x) % a.lanes,
            rows_here = static_cast<int>(blockDim.x) / a.lanes;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * rows_here;
  SeeY<T, kLooks> seen;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * rows_here; first < a.rows; first += stride) {
    const int64_t row = first + static_cast<int>(threadIdx.x) / a.lanes;
    const auto holds = [&](int i) { return row < a.rows && (i * a.lanes + lane) * N < a.width; };
    Packed<T, N> x[kEach];
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (!holds(i)) continue;
      x[i] = read_sum<N>(a, row, (i * a.lanes + lane) * N);
      squares = squares_of(unpack(x[i]), squares);
    }
    float inverse;
    if (a.has_inverse) {
      inverse = row < a.rows ? a.inverse_rms[row] : 0.0f;
    } else {
      inverse = inverse_of(a, reduce.sum(squares), row, lane == 0 && row < a.rows);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (holds(i)) write_scaled<T>(a, unpack(x[i]), inverse, row, (i * a.lanes + lane) * N, seen);
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
        squares = squares_of(unpack(read_sum<1>(a, row, column)), squares);
      }
      inverse = inverse_of(a, reduce.sum(squares), row, threadIdx.x == 0);
    }
    // No barrier is needed: each thread reads what it has written itself.
    for (int64_t column = threadIdx.x; column < a.width; column += blockDim.x) {
      write_scaled<T>(a, load<1>(stored + row * a.width + column), inverse, row, column, seen);
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
  return run(each == 1   ? norm_held_rows<T, 1, kLooks>
             : each == 2 ? norm_held_rows<T, 2, kLooks>
                         : norm_held_rows<T, 4, kLooks>,
             blocks, threads);
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
