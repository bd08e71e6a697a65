// Sums in float64 whose bits do not depend on the number of multiprocessors.
#include "tessera/ops/cuda/entries.cuh"
#include "tessera/ops/cuda/reduce.cuh"

namespace tessera::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kPiece = int64_t{1} << 16;

template <int N, class T>
__device__ double squares_of(const T* x, double sum) {
  const Floats<N> values = load<N>(x);
#pragma unroll
  for (int i = 0; i < N; ++i)
    sum = fma(static_cast<double>(values.v[i]), static_cast<double>(values.v[i]), sum);
  return sum;
}
template <int>
__device__ double squares_of(const double* x, double sum) {
  return fma(*x, *x, sum);
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    square_pieces(const T* x, int64_t n, int64_t pieces, double* sums) {
  TESSERA_SHARED(double, slots, 2 * kWarp);
  RowReduce<double> reduce(slots, kThreads);
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const int64_t begin = piece * kPiece, end = begin + kPiece < n ? begin + kPiece : n;
    const int64_t whole = begin + (end - begin) / N * N;
    double sum = 0.0;
    for (int64_t i = begin + static_cast<int64_t>(threadIdx.x) * N; i < whole; i += kThreads * N) {
      sum = squares_of<N>(x + i, sum);
    }
    for (int64_t i = whole + threadIdx.x; i < end; i += kThreads) sum = squares_of<1>(x + i, sum);
    sum = reduce.sum(sum);
    if (threadIdx.x == 0) sums[piece] = sum;
  }
}

__global__ void __launch_bounds__(kThreads) sum_all(const double* x, int64_t n, double* result) {
  TESSERA_SHARED(double, slots, 2 * kWarp);
  RowReduce<double> reduce(slots, kThreads);
  double sum = 0.0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) sum += x[i];
  sum = reduce.sum(sum);
  if (threadIdx.x == 0) *result = sum;
}

int64_t pieces_of(int64_t n) { return divided_up(n, kPiece); }

}  // namespace

int64_t sum_of_squares_workspace(int64_t n) { return pieces_of(n) * static_cast<int64_t>(sizeof(double)); }

int32_t sum(const double* x, int64_t n, double* sum, void* stream) {
  return launch(sum_all, 1, kThreads, stream, x, n, sum);
}

int32_t sum_of_squares(Type type, const void* x, int64_t n, double* result, void* workspace, void* stream) {
  auto* sums = static_cast<double*>(workspace);
  const int64_t pieces = pieces_of(n);
  const auto run = [&](auto tag) {
    using T = decltype(tag);
    const auto* from = static_cast<const T*>(x);
    constexpr int N = sizeof(T) == 8 ? 1 : kVector<T>;
    return is_aligned(x) ? launch(square_pieces<T, N>, pieces, kThreads, stream, from, n, pieces, sums)
                         : launch(square_pieces<T, 1>, pieces, kThreads, stream, from, n, pieces, sums);
  };
  const int32_t error = type == Type::F64 ? run(double()) : dispatch(type, run);
  return error != cudaSuccess ? error : sum(sums, pieces, result, stream);
}

}  // namespace tessera::ops::cuda
